"""Probe of a connection to Google Cloud Storage."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from headrace.core.connection import Connection
from headrace.errors import StreamError
from headrace.sources.objects.gcs.client import GcsClient

PROBE_SECONDS: Final = 40.0


class _Buckets(msgspec.Struct):
    items: list[Any] = []


def probe(connection: Connection) -> str:
    """List the buckets of the project, and return how many there are.

    Raises:
        UpstreamError: The library is missing, or the service refuses the credentials.
        StreamError: The service does not answer.
    """
    return asyncio.run(_probe(connection))


async def _probe(connection: Connection) -> str:
    what = "The buckets cannot be listed"
    async with AsyncExitStack() as stack:
        client = await GcsClient.open(connection, stack)
        where = f"Google Cloud Storage at {client.address}"
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await client.tokens.headers()
                if client.tokens.project is None:
                    return f"{where}: the credentials are accepted. To count buckets, add project=ID"
                query = {"project": client.tokens.project, "maxResults": 1_000, "fields": "items(name)"}
                answer = await client.request(what, "GET", "/storage/v1/b", query, expected=frozenset({403}))
        except TimeoutError as error:
            raise StreamError(f"{what}: no answer within {PROBE_SECONDS:g} s.") from error
    if answer.status == 403:
        return f"{where}: the credentials are accepted, and may not list all buckets"
    return f"{where}: {len(msgspec.json.decode(answer.body, type=_Buckets).items)} buckets"
