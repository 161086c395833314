"""How a process fetches connections and variables: as its job, over the client that it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import quote

from headrace.client.http.responses import translate_decode_errors
from headrace.triggers.secrets import LONGEST_WAIT, Kind, SecretBackend
from headrace.wire.secrets import ConnectionValue, VariableValue

Get: TypeAlias = Callable[[str], bytes]
GetAsync: TypeAlias = Callable[[str], Awaitable[bytes]]
Answer: TypeAlias = ConnectionValue | VariableValue


def blocking_source(get: Get) -> SecretBackend:
    """Return a source over `get`, which sends a GET for a path and blocks until it has the body."""

    def ask(kind: Kind, name: str) -> Answer:
        return _read(kind, get(_path(kind, name)))

    async def ask_async(kind: Kind, name: str) -> Answer:
        return await asyncio.to_thread(ask, kind, name)

    return SecretBackend(ask, ask_async)


def async_source(get: GetAsync, loop: asyncio.AbstractEventLoop) -> SecretBackend:
    """Return a source over `get`, which is awaited in `loop`; threads beside the loop wait for it."""

    async def ask_async(kind: Kind, name: str) -> Answer:
        return _read(kind, await get(_path(kind, name)))

    def ask(kind: Kind, name: str) -> Answer:
        return asyncio.run_coroutine_threadsafe(ask_async(kind, name), loop).result(LONGEST_WAIT)

    return SecretBackend(ask, ask_async)


def _path(kind: Kind, name: str) -> str:
    return f"/execution/{kind}s/{quote(name, safe='')}"


def _read(kind: Kind, body: bytes) -> Answer:
    with translate_decode_errors("the api"):
        return (ConnectionValue if kind == "connection" else VariableValue).model_validate_json(body)
