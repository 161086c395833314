"""The probe of a connection to a service of AWS: list what the service has, once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.core.connection import Connection
from headrace.errors import HeadraceError
from headrace.sources.aws.service_errors import code_of

PROBE_SECONDS: Final = 20.0

OpenClient: TypeAlias = Callable[[Connection, AsyncExitStack], Awaitable[Any]]
"""Return a client that is closed with the stack."""


class Listing(NamedTuple):
    """The request of a probe. `number` sends it, and returns the number of `things` as text."""

    service: str
    things: str
    open: OpenClient
    number: Callable[[Any], Awaitable[str]]
    described: Callable[[str, BaseException], HeadraceError]


def probe_service(connection: Connection, listing: Listing) -> str:
    """Return a line with the number of the things that the service has.

    Raises:
        UpstreamError: The client library is missing, or the service refuses the credentials or the region.
        StreamError: The service does not answer.
    """
    return asyncio.run(_probe(connection, listing))


async def _probe(connection: Connection, listing: Listing) -> str:
    async with AsyncExitStack() as stack:
        client = await listing.open(connection, stack)
        where = f"{listing.service} at {client.meta.endpoint_url}"
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                return f"{where}: {await listing.number(client)} {listing.things}"
        except Exception as error:
            if code_of(error) in {"AccessDenied", "AccessDeniedException"}:
                return f"{where}: the credentials are accepted, and may not list all {listing.things}"
            raise listing.described(f"The {listing.things} cannot be listed", error) from error
    raise AssertionError
