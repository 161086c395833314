"""Probe of a connection to SQS."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, Final

from headrace.core.connection import Connection
from headrace.sources.aws.client import open_client
from headrace.sources.aws.probe import Listing, probe_service
from headrace.sources.sqs.client import ANSWER_SECONDS, SERVICE
from headrace.sources.sqs.service_errors import described

MAX_QUEUES: Final = 1_000
"""Queues of one answer, the most that the service returns."""


def probe(connection: Connection) -> str:
    """List the queues, and return how many there are. Raises as `probe_service` does."""
    return probe_service(connection, _QUEUES)


async def _open(connection: Connection, stack: AsyncExitStack) -> Any:
    return await open_client(SERVICE, connection, stack, answer_seconds=ANSWER_SECONDS, max_requests=1)


async def _number(client: Any) -> str:
    answer = await client.list_queues(MaxResults=MAX_QUEUES)
    return f"more than {MAX_QUEUES:,}" if answer.get("NextToken") else str(len(answer.get("QueueUrls", ())))


_QUEUES: Final = Listing("SQS", "queues", _open, _number, described)
