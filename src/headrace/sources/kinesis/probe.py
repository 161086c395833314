"""Probe of a connection to Kinesis."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, Final

from headrace.core.connection import Connection
from headrace.sources.aws.client import open_client
from headrace.sources.aws.probe import Listing, probe_service
from headrace.sources.kinesis.client import ANSWER_SECONDS, SERVICE
from headrace.sources.kinesis.service_errors import described


def probe(connection: Connection) -> str:
    """List the streams, and return how many there are. Raises as `probe_service` does."""
    return probe_service(connection, _STREAMS)


async def _open(connection: Connection, stack: AsyncExitStack) -> Any:
    return await open_client(SERVICE, connection, stack, answer_seconds=ANSWER_SECONDS, max_requests=1)


async def _number(client: Any) -> str:
    answer = await client.list_streams()
    return f"{'more than ' if answer.get('HasMoreStreams') else ''}{len(answer['StreamNames']):,}"


_STREAMS: Final = Listing("Kinesis", "streams", _open, _number, described)
