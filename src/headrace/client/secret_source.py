"""Fetch connections and variables as the job of a process, with its client."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from headrace.client.job import JobClient
from headrace.client.triggerer import TriggererClient
from headrace.triggers.secrets import MAX_WAIT_SECONDS, Kind, SecretBackend
from headrace.wire.calls.execution import GET_CONNECTION, GET_VARIABLE
from headrace.wire.secrets import ConnectionValue, VariableValue

Value: TypeAlias = ConnectionValue | VariableValue


def blocking_source(client: JobClient) -> SecretBackend:
    """Return a source that blocks until `client` has the response."""

    def get(kind: Kind, name: str) -> Value:
        if kind == "connection":
            return client.request(GET_CONNECTION, None, id=name)
        return client.request(GET_VARIABLE, None, key=name)

    async def get_async(kind: Kind, name: str) -> Value:
        return await asyncio.to_thread(get, kind, name)

    return SecretBackend(get, get_async)


def async_source(client: TriggererClient, loop: asyncio.AbstractEventLoop) -> SecretBackend:
    """Return a source whose requests `client` sends in `loop`; other threads wait for the response."""

    async def get_async(kind: Kind, name: str) -> Value:
        if kind == "connection":
            return await client.request(GET_CONNECTION, None, id=name)
        return await client.request(GET_VARIABLE, None, key=name)

    def get(kind: Kind, name: str) -> Value:
        return asyncio.run_coroutine_threadsafe(get_async(kind, name), loop).result(MAX_WAIT_SECONDS)

    return SecretBackend(get, get_async)
