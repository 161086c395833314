"""Probe of a connection to S3."""

from __future__ import annotations

from typing import Any, Final

from headrace.core.connection import Connection
from headrace.sources.aws.probe import Listing, probe_service
from headrace.sources.objects.s3.client import described, open_s3_client


def probe(connection: Connection) -> str:
    """List the buckets, and return how many there are. Raises as `probe_service` does."""
    return probe_service(connection, _BUCKETS)


async def _number(client: Any) -> str:
    answer = await client.list_buckets()
    return str(len(answer.get("Buckets", ())))


_BUCKETS: Final = Listing("S3", "buckets", open_s3_client, _number, described)
