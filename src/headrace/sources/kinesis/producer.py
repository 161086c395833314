"""Read a stream of Kinesis as a shared stream. Progress is in a table of DynamoDB."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

import structlog

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import HeadraceError, StreamError, UpstreamError, UpstreamFenced
from headrace.sources.declared_decoder import Decoding, decoder_of
from headrace.sources.kinesis.client import KinesisClient, StreamInfo
from headrace.sources.kinesis.lanes import Delivered, Lane, start_ms
from headrace.sources.kinesis.message import decode_message_again
from headrace.sources.kinesis.reader import Reading, StreamReader
from headrace.sources.kinesis.table import Progress, ProgressTable
from headrace.sources.lane_commits import LaneCommits
from headrace.sources.progress_note import newest_marks
from headrace.sources.start import Start
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection
from headrace.triggers.stream_log import LogMark
from headrace.triggers.upstream import SharedStreamProducer

PROGRESS_PROBLEM: Final = "progress"

log = structlog.get_logger(__name__)


class KinesisArguments(NamedTuple):
    """The arguments of a `Kinesis` upstream, as its producer needs them."""

    stream: str
    group: str
    connection: str
    table: str
    table_connection: str
    start: Start
    decode: Decoding
    interval: float
    dead_letter_stream: str | None = None

    @property
    def reader(self) -> str:
        """The name of the reader in the table."""
        return f"{self.group}/{self.stream}"


class KinesisProducer(SharedStreamProducer):
    """The producer of a `Kinesis` upstream. `advance` stores the checkpoint of a lane, those of all waiting lanes at once.

    A failed event is not stored, nor any later one of its lane. They are read again when the upstream is opened next.
    """

    def __init__(self, arguments: KinesisArguments) -> None:
        self._arguments = arguments
        self._client: KinesisClient | None = None
        self._table: ProgressTable | None = None
        self._reader: StreamReader | None = None
        self._advances = LaneCommits(self._commit)

    async def open_stream(self) -> AsyncIterator[tuple[Message, Delivered]]:
        """Take the progress over and yield the records of the stream without end.

        Raises:
            UpstreamError: The connection, the stream, the table or a permission is missing, or the client library is.
            UpstreamFenced: Another reader has taken over.
            StreamError: The service does not answer, or the retention has deleted records that were not read.
        """
        reader = await self._open()
        try:
            while True:
                yield await reader.next()
        finally:
            reader.stop()

    async def _open(self) -> StreamReader:
        arguments = self._arguments
        connection = await aget_connection(arguments.connection)
        self._client = client = await KinesisClient.open(connection, arguments.stream)
        if arguments.table_connection != arguments.connection:
            connection = await aget_connection(arguments.table_connection)
        self._table = table = await ProgressTable.open(connection, arguments.table, arguments.reader)
        info = await client.look()
        progress = await table.read()
        await self._check_marks(progress)
        problem = self._missing(progress, info)
        is_again = progress.reader is not None and progress.reader.created != info.created
        # All records of a stream that was created again are new.
        begin = start_ms("earliest" if is_again else arguments.start, info.now_ms)
        taken = await table.begin(progress.reader, info.created, begin)
        reading = Reading(client, table, taken, decoder_of(arguments.decode), arguments.interval, self._mark)
        self._reader = reader = StreamReader(reading, info)
        if problem is not None:
            log.error("progress of kinesis not used", stream=arguments.stream, reason=problem)
            reader.problems[PROGRESS_PROBLEM] = problem
        own = {name: stored for name, stored in progress.lanes.items() if name == taken.lane(_shard_of(name))}
        await reader.start({_shard_of(name): stored for name, stored in own.items()})
        await reader.remove_old(progress.lanes)
        return reader

    def _missing(self, progress: Progress, info: StreamInfo) -> str | None:
        """Return the report about progress that is not used, or None. Raises `UpstreamError` if it is not known where to read on."""
        arguments = self._arguments
        if progress.reader is not None:
            if progress.reader.created == info.created:
                return None
            return f"Stream {arguments.stream!r} was deleted and created again. It is read from its first record on, in new lanes."
        mark = self._mark()
        if mark is None or not mark.receipts:
            return None
        lost = f"The progress of {arguments.reader!r} in table {arguments.table!r} was deleted, and the stream was read before"
        if arguments.start == "latest":
            raise UpstreamError(
                f"Records may be lost: {lost[0].lower()}{lost[1:]}.",
                hint='Set start="earliest" or a time. Events that are stored are recognised.',
            )
        return f"{lost}. It is read again from its start, in new lanes. Events that are stored are recognised."

    async def _check_marks(self, progress: Progress) -> None:
        if self.log is not None:
            for mark in newest_marks(progress.marks):
                await self.log.check(mark)

    def _mark(self) -> LogMark | None:
        return None if self.log is None else self.log.mark

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Store the checkpoint of the batch, at once with those of other lanes that wait.

        Raises:
            UpstreamFenced: Another reader has taken over.
            StreamError: The table does not answer, or takes fewer requests now.
            UpstreamError: The user may not write to the table.
        """
        await self._advances.submit(batch)

    def get_advance_lane(self, broker_payload: Delivered) -> Hashable:
        """Return the shard, with a checksum of the time at which the stream was created."""
        return broker_payload.lane.name

    def get_position(self, broker_payload: Delivered) -> int | None:
        """Return the number of the event in its shard, counted from 1 on."""
        return broker_payload.position

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the position of the last event, or None while the shard has records that were not read."""
        known = self._lane(lane)
        return None if known is None else known.end_position

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the stored position, or None before the first. It includes what was lost before the opening."""
        known = self._lane(lane)
        return None if known is None else known.committed_position

    def get_unread(self) -> int | None:
        """Return the number of messages that are not yielded, or None while a shard has records that were not read."""
        return None if self._reader is None else self._reader.unread

    def get_errors(self) -> Mapping[str, str]:
        """Return the lanes that cannot be read now, that are late or that have lost records, and whether the service is away."""
        return {} if self._reader is None else dict(self._reader.problems)

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed message, decoded again."""
        return decode_message_again(message, self._arguments.decode)

    async def aclose(self) -> None:
        """Close the connections. The next reader can start at once. If it is cancelled or a part fails, the other parts are closed too."""
        async with AsyncExitStack() as stack:
            for part in (self._client, self._table, self._reader):
                if part is not None:
                    stack.push_async_callback(part.aclose)
            await self._advances.aclose()

    def _lane(self, lane: Hashable) -> Lane | None:
        return None if self._reader is None else self._reader.lanes.get(str(lane))

    async def _commit(self, items: Sequence[AdvanceItem]) -> HeadraceError | None:
        reader, lane = self._reader, items[0].broker_payload.lane
        if reader is None:
            return StreamError("The reading of Kinesis has not begun.")
        if isinstance(reader.failure, UpstreamFenced):
            return reader.failure
        checkpoint = lane.answer(items)
        if checkpoint is None:
            return None
        try:
            await reader.store(lane, checkpoint)
        except HeadraceError as error:
            if isinstance(error, UpstreamFenced):
                reader.fail(error)
            return error
        return None


def _shard_of(lane: str) -> str:
    return lane.rpartition("@")[0]
