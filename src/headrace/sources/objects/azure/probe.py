"""Probe of a connection to an Azure storage account."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final
from xml.etree import ElementTree

from headrace.core.connection import Connection
from headrace.errors import StreamError
from headrace.sources.objects.azure.client import open_blob_client

PROBE_SECONDS: Final = 60.0
MAX_CONTAINERS: Final = 5_000
_MAY_NOT_LIST: Final = frozenset({"AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch"})
"""Answers to valid credentials that may not list the containers of the account."""


def probe(connection: Connection) -> str:
    """List the containers of the account, and return how many there are.

    Raises:
        UpstreamError: The library for tokens is missing, or the service refuses the credentials.
        StreamError: The service does not answer.
    """
    return asyncio.run(_probe(connection))


async def _probe(connection: Connection) -> str:
    what = "The containers cannot be listed"
    async with AsyncExitStack() as stack:
        client = await open_blob_client(connection, stack)
        where = f"Azure Blob Storage at {client.address}"
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                answer = await client.request(what, "GET", "/", {"comp": "list", "maxresults": MAX_CONTAINERS}, expected=_MAY_NOT_LIST)
        except TimeoutError as error:
            raise StreamError(f"{what}: no answer within {PROBE_SECONDS:g} s.") from error
    if answer.code:
        return f"{where}: the credentials are accepted, and may not list all containers"
    containers = ElementTree.fromstring(answer.body).iterfind("Containers/Container")  # noqa: S314  # expat limits the growth of entities
    return f"{where}: {sum(1 for _ in containers)} containers"
