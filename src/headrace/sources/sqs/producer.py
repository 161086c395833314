"""Read a queue of SQS as a shared stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import NamedTuple

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamError
from headrace.sources.sqs.client import SqsClient
from headrace.sources.sqs.deletes import Deletes
from headrace.sources.sqs.leases import Leases, Part
from headrace.sources.sqs.receiver import PollSettings, Receiver
from headrace.sources.sqs.visibility import VisibilityTimeouts
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection
from headrace.triggers.upstream import SharedStreamProducer


class QueueDescription(NamedTuple):
    """The arguments of an `SQS` upstream, as its producer needs them."""

    connection: str
    account: str | None
    polls: PollSettings


class _Opened(NamedTuple):
    """The parts of an open stream."""

    client: SqsClient
    leases: Leases
    receiver: Receiver
    deletes: Deletes
    timeouts: VisibilityTimeouts
    extensions: asyncio.Task[None]


class SqsProducer(SharedStreamProducer):
    """The producer of an `SQS` upstream: yields `Message`s. `advance` deletes messages of which all records are answered.

    A failed message is not deleted, nor any later one of its group in a FIFO queue. They come again when their visibility timeout ends, or
    when the upstream is opened next.
    """

    def __init__(self, description: QueueDescription) -> None:
        self._description = description
        self._problems: dict[str, str] = {}
        self._opened: _Opened | None = None

    async def open_stream(self) -> AsyncIterator[tuple[Message, Part]]:
        """Look up the queue and yield the records of its messages without end.

        Raises:
            UpstreamError: The connection, the queue or a permission is missing, or the client library is.
            StreamError: The service does not answer.
        """
        receiver = (await self._open()).receiver
        try:
            while True:
                yield await receiver.next()
        finally:
            receiver.stop()

    async def _open(self) -> _Opened:
        polls = self._description.polls
        connection = await aget_connection(self._description.connection)
        client = await SqsClient.open(connection, polls.queue, self._description.account, polls.wait)
        leases = Leases(polls.visibility, is_fifo=polls.is_fifo)
        deletes = Deletes(client, leases)
        timeouts = VisibilityTimeouts(client, leases, polls.visibility, self._problems)
        receiver = Receiver(client, leases, deletes, polls, self._problems)
        extensions = asyncio.create_task(timeouts.run(), name="headrace visibility timeouts")
        extensions.add_done_callback(lambda task: _report(task, receiver))
        self._opened = _Opened(client, leases, receiver, deletes, timeouts, extensions)
        receiver.start()
        return self._opened

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Delete the answered messages of the batch, together with those of other lanes that wait.

        Raises:
            StreamError: The service does not answer, or refused some messages for now.
            UpstreamError: The credentials or permissions do not allow it.
        """
        opened = self._opened
        if opened is None:
            raise StreamError("The reading of SQS has not begun.")
        await opened.deletes.delete(opened.leases.answer(batch))

    def get_advance_lane(self, broker_payload: Part) -> Hashable:
        """Return the message group, or the name of a standard queue."""
        return broker_payload.lease.lane

    def get_errors(self) -> Mapping[str, str]:
        """Return why the queue cannot be read or its messages cannot be held now."""
        return dict(self._problems)

    async def aclose(self) -> None:
        """Wait for the end of the running polls, then make all messages visible that were not deleted."""
        opened = self._opened
        if opened is None:
            return
        try:
            await opened.receiver.aclose()
            await opened.deletes.aclose()
            await _end(opened.extensions)
            await opened.timeouts.release()
        finally:
            opened.extensions.cancel()
            await opened.client.aclose()


def _report(task: asyncio.Task[None], receiver: Receiver) -> None:
    """End the stream if the task that extends its leases has failed."""
    if not task.cancelled() and isinstance(error := task.exception(), Exception):
        receiver.fail(error)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
