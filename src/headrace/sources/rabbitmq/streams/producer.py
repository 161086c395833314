"""Read streams of RabbitMQ as a shared stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import HeadraceError, StreamEnded, StreamError, UpstreamError
from headrace.sources.cancellation import check_cancelled
from headrace.sources.declared_decoder import decoder_of
from headrace.sources.group_commit import GroupCommit
from headrace.sources.progress_note import newest_marks
from headrace.sources.rabbitmq.client import UNREACHABLE, RabbitConnection
from headrace.sources.rabbitmq.message import offset_of, stream_event
from headrace.sources.rabbitmq.server_errors import described
from headrace.sources.rabbitmq.settings import address_of
from headrace.sources.rabbitmq.streams.lane import Delivered, Lane
from headrace.sources.rabbitmq.streams.opening import Description, Opening
from headrace.sources.rabbitmq.streams.progress import Names, Progress
from headrace.sources.rabbitmq.streams.reader import Arrival, StreamReader, first_offset
from headrace.sources.rabbitmq.streams.start import offset_argument
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection
from headrace.triggers.stream_log import LogMark
from headrace.triggers.upstream import SharedStreamProducer

MAX_REPORTED: Final = 1_000
SEGMENT_NOTES: Final = 1
"""Offsets with which a segment of a stream begins: the server stores there what it knows of senders and of offsets."""

log = structlog.get_logger(__name__)


class _Commit(NamedTuple):
    lane: Lane
    offset: int


class StreamsProducer(SharedStreamProducer):
    """The producer of a `RabbitMQStreams` upstream. `advance` stores the last offset of a batch, and waits until the server has it on disk.

    A failed message is not passed, nor any later one of its stream. They are read again when the upstream is opened next.
    """

    def __init__(self, description: Description) -> None:
        self._description = description
        self._arrivals: asyncio.Queue[Arrival | None] = asyncio.Queue()
        self._failure: HeadraceError | None = None
        self._connection: RabbitConnection | None = None
        self._lanes: dict[str, Lane] = {}
        self._progress: dict[str, Progress] = {}
        self._readers: list[StreamReader] = []
        self._problems: dict[str, str] = {}
        self._commits: GroupCommit[_Commit, HeadraceError | None] = GroupCommit(self._store)

    async def open_stream(self) -> AsyncIterator[tuple[Message, Delivered]]:
        """Consume the streams and yield their messages without end.

        Raises:
            UpstreamError: The connection, a stream or a permission is missing, messages may be lost, or the client library is missing.
            StreamError: The server does not answer, a stream has another reader or was deleted, or messages are removed.
        """
        await self._open()
        decode = decoder_of(self._description.decode)
        while True:
            check_cancelled()
            arrival = await self._arrivals.get()
            if self._failure is not None or arrival is None:
                raise self._failure or StreamError("The reading of RabbitMQ has ended.")
            reader, message = arrival
            delivered = await self._deliver(reader.lane, message)
            if delivered is not None:
                yield stream_event(message, reader.lane.name, decode), delivered
            await reader.take(message)

    async def _open(self) -> None:
        description, mark = self._description, self._mark
        address = address_of(await aget_connection(description.connection))
        connection = self._connection = await RabbitConnection.open(address, self._lost)
        try:
            publishing = await connection.channel(confirms=True)
        except Exception as error:
            raise described(UNREACHABLE, error) from None
        openings = [Opening(connection, Names(description.group, stream), description.start, publishing) for stream in description.streams]
        for failure in await asyncio.gather(*(opening.lock() for opening in openings), return_exceptions=True):
            if failure is not None:
                raise failure
        if self.log is not None:
            for noted in newest_marks(opening.note.mark for opening in openings if opening.note is not None):
                await self.log.check(noted)
        for opening in openings:
            lane = await opening.lane(mark)
            self._lanes[lane.name], self._progress[lane.name] = lane, opening.progress
            if opening.problem is not None:
                self._problems[lane.stream] = opening.problem
        for lane in self._lanes.values():
            reader = StreamReader(connection, lane, description.prefetch, self._arrivals.put_nowait, self._fail)
            self._readers.append(reader)
            await reader.open(offset_argument(lane.committed, description.start))

    @property
    def _mark(self) -> LogMark | None:
        return None if self.log is None else self.log.mark

    async def _deliver(self, lane: Lane, message: Any) -> Delivered | None:
        """Record a message and look for what is missing before it. Return None if the lane is held. Raises `HeadraceError`."""
        offset, expected = offset_of(message), lane.expected
        if offset is None:
            raise UpstreamError(f"Queue {lane.stream!r} is not a stream.", hint="Read a classic or quorum queue with RabbitMQ(…).")
        if lane.is_held:
            return None
        if expected is None:
            await self._progress[lane.name].store(lane.birthmark, offset - 1, self._mark)
            lane.begin(offset)
        elif offset != expected and not await self._pass_missing(lane, expected, offset):
            return None
        return lane.deliver(offset)

    async def _pass_missing(self, lane: Lane, expected: int, offset: int) -> bool:
        """Report the offsets without a message before `offset`. Return False if the lane is held, until the stream opens again."""
        connection = self._connection
        first = None if connection is None else await first_offset(connection, lane.stream)
        if first is None or first <= expected + SEGMENT_NOTES:
            self._report_undelivered(lane, expected, offset - 1)
            return True
        log.error("messages removed by the server", lane=lane.name, first=expected, last=first - 1)
        reason = (
            f"Messages {expected} to {first - 1} of the stream are missing. "
            "The server removed them before they were read: the retention of the stream is too short."
        )
        self._report(lane.name, reason)
        if lane.removed_to(first):
            return True
        self._end_if_drained(lane, reason)
        return False

    def _report_undelivered(self, lane: Lane, first: int, last: int) -> None:
        """Report offsets that are in the stream and without a message, but for the one with which a segment begins."""
        if last - first < SEGMENT_NOTES:
            return
        log.warning("offsets without a message", lane=lane.name, first=first, last=last)
        self._report(
            f"{lane.name}, without a message",
            f"Offsets {first} to {last} have no message that AMQP delivers. Stream clients store their own offsets there. "
            "If a sender compresses batches, AMQP does not deliver these.",
        )

    def _end_if_drained(self, lane: Lane, reason: str) -> None:
        """End the stream once all that a held lane has delivered is answered. It names what is missing when it opens again."""
        if lane.is_held and lane.is_drained:
            self._fail(StreamError(f"Lane {lane.name} is held. {reason}", hint="The stream opens again after them."))

    def _report(self, name: str, problem: str) -> None:
        if name in self._problems or len(self._problems) < MAX_REPORTED:
            self._problems[name] = problem

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Store the last offset of the batch, together with those of other streams that wait.

        Raises:
            StreamEnded: The connection has ended, and with it the lock of the reader.
            StreamError: The server does not answer.
            UpstreamError: The user may not send messages to the queue of the offset.
        """
        if not batch:
            return
        lane: Lane = batch[0].broker_payload.lane
        offset = lane.answer(batch)
        if offset is not None:
            error = await self._commits.submit(_Commit(lane, offset))
            if error is not None:
                raise error
        self._end_if_drained(lane, self._problems.get(lane.name, ""))

    async def _store(self, commits: list[_Commit]) -> list[HeadraceError | None]:
        """Store the last offset of each lane. A lane that is behind its own commit changes nothing."""
        offsets: dict[str, int] = {}
        for lane, offset in commits:
            offsets[lane.name] = max(offset, offsets.get(lane.name, offset))
        results = await asyncio.gather(*(self._store_offset(self._lanes[name], offset) for name, offset in offsets.items()))
        errors = dict(zip(offsets, results, strict=True))
        return [errors[commit.lane.name] for commit in commits]

    async def _store_offset(self, lane: Lane, offset: int) -> HeadraceError | None:
        if self._failure is not None:
            return StreamEnded(str(self._failure))
        try:
            await self._progress[lane.name].store(lane.birthmark, offset, self._mark)
        except HeadraceError as error:
            # The channel may have ended. The connection and the lock of this reader end with the stream.
            self._fail(error)
            return StreamEnded(str(error))
        lane.confirm(offset)
        return None

    def get_advance_lane(self, broker_payload: Delivered) -> Hashable:
        """Return the stream with its birthmark."""
        return broker_payload.lane.name

    def get_position(self, broker_payload: Delivered) -> int | None:
        """Return the offset."""
        return broker_payload.position

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the stored offset, or None before the first one. It includes what was removed before the opening."""
        known = self._lanes.get(str(lane))
        return None if known is None else known.committed_position

    def get_errors(self) -> Mapping[str, str]:
        """Return the streams with messages that the server removed, and the streams that were deleted and created again."""
        return dict(self._problems)

    async def aclose(self) -> None:
        """Close the connection. The next reader can start at once."""
        await self._commits.aclose()
        for reader in self._readers:
            reader.close()
        if self._connection is not None:
            await self._connection.close()

    def _lost(self, error: BaseException) -> None:
        self._fail(described("The connection to RabbitMQ has ended" if self._readers else UNREACHABLE, error))

    def _fail(self, error: HeadraceError) -> None:
        """End the stream with this error."""
        if self._failure is None:
            self._failure = error
            self._arrivals.put_nowait(None)
