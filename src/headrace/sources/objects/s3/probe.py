"""Probe of a connection to S3."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from headrace.core.connection import Connection
from headrace.sources.aws.service_errors import code_of
from headrace.sources.objects.s3.client import described, open_s3_client

PROBE_SECONDS = 20.0


def probe(connection: Connection) -> str:
    """List the buckets, and return how many there are.

    Raises:
        UpstreamError: The client library is missing, or the service refuses the credentials or the region.
        StreamError: The service does not answer.
    """
    return asyncio.run(_probe(connection))


async def _probe(connection: Connection) -> str:
    what = "The buckets cannot be listed"
    async with AsyncExitStack() as stack:
        client = await open_s3_client(connection, stack)
        where = client.meta.endpoint_url
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                answer = await client.list_buckets()
        except Exception as error:
            if code_of(error) == "AccessDenied":
                return f"S3 at {where}: the credentials are accepted, and may not list all buckets"
            raise described(what, error) from error
    names = [bucket["Name"] for bucket in answer.get("Buckets", ())]
    return f"S3 at {where}: {len(names)} buckets"
