"""Read topics of Kafka as a shared stream. The consumer has a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from headrace.core.ledger.outcome import AdvanceItem
from headrace.core.values.shards import Shard
from headrace.errors import HeadraceError, StreamError
from headrace.sources.blocking_seek import BlockingSeek
from headrace.sources.declared_decoder import decoder_of, is_function
from headrace.sources.decoding import Decoder, decode_again
from headrace.sources.group_commit import GroupCommit
from headrace.sources.kafka.commits import Answers, CommitRequest
from headrace.sources.kafka.description import Description, Listener
from headrace.sources.kafka.message import KafkaMessage, decode_unread, open_decoder
from headrace.sources.kafka.reader import KafkaReader
from headrace.sources.kafka.settings import KafkaDecoding, client_settings, consumer_settings, ignored_settings
from headrace.sources.kafka.start import Start
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection
from headrace.triggers.stream_log import LogMark
from headrace.triggers.upstream import SharedStreamProducer

if TYPE_CHECKING:
    from headrace.sources.schema_registry.registry import SchemaRegistry

CLOSE_SECONDS: Final = 10.0
CLOSE_COMMIT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
"""For the reader's thread, which ends a commit earlier, but may be in a request of a rebalance."""
MEMBER_DIGITS: Final = 12

log = structlog.get_logger(__name__)

Item = list[KafkaMessage] | list[LogMark] | HeadraceError


class Topics(NamedTuple):
    """The arguments of a `Kafka` upstream, as its producer needs them."""

    topics: Sequence[str]
    connection: str
    group: str
    start: Start
    decode: KafkaDecoding
    schema_registry: str | None
    stream_key: str
    shard: Shard
    dead_letter_topic: str | None


class KafkaProducer(SharedStreamProducer):
    """The producer of a `Kafka` upstream: yields `KafkaMessage`s. `advance` commits, with one call for all waiting lanes.

    A failed message is not committed, nor any later one of its lane. They are read again when the upstream is opened next.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._reader: KafkaReader | None = None
        self._seek: BlockingSeek | None = None
        self._inbox: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._batch: Iterator[KafkaMessage] = iter(())
        self._batch_size = 0
        """The messages of the present batch. The reader counts all of them as not taken."""
        self._ended = asyncio.Event()
        self._decoding_again = asyncio.Lock()
        self._values: tuple[Decoder, SchemaRegistry | None] | None = None
        """The decoder of stored values, with a client of the schema registry for this event loop. It remembers no schema as unknown."""
        self._advances: GroupCommit[Sequence[AdvanceItem], HeadraceError | None] = GroupCommit(self._commit)

    async def open_stream(self) -> AsyncIterator[tuple[KafkaMessage, KafkaMessage]]:
        """Join the group and yield the messages of its topics without end.

        Raises:
            UpstreamError: The connection, a topic or a right is missing, or the client library is.
            UpstreamFenced: Another reader has taken over the group.
            StreamError: The brokers do not answer, or messages were deleted before they were read.
        """
        decode = decoder_of(self._topics.decode) if is_function(self._topics.decode) else None
        reader = self._reader = await self._start()
        try:
            while True:
                kind, item = await self._inbox.get()
                if kind == "messages":
                    self._batch, self._batch_size = iter(item), len(item)
                    size = sum(len(message.data) for message in item)
                    for message in self._batch:
                        if decode is not None:
                            decode_unread(message, decode)
                        yield message, message
                    reader.took(len(item), size)
                    self._batch_size = 0
                elif kind == "marks":
                    await self._check(reader, item)
                else:
                    raise item
        finally:
            reader.stop_reading()

    async def _start(self) -> KafkaReader:
        topics = self._topics
        connection = await aget_connection(topics.connection)
        ignored = ignored_settings(connection)
        if ignored:
            log.warning("settings of a connection ignored", connection=connection.id, settings=ignored)
        member = f"headrace-{sha256(topics.stream_key.encode()).hexdigest()[:MEMBER_DIGITS]}"
        registry = None if topics.schema_registry is None else await aget_connection(topics.schema_registry)
        self._seek = None if self.log is None or self.log.seek is None else BlockingSeek(self.log.seek)
        description = Description(
            topics.topics,
            topics.start,
            topics.decode,
            registry,
            consumer_settings(connection, topics.group, member, topics.shard),
            client_settings(connection),
            topics.shard,
            self._seek,
            None if self.log is None else self.log.mark,
        )
        reader = KafkaReader(description, self._listener())
        reader.start()
        return reader

    def _listener(self) -> Listener:
        """Return the callbacks of the reader, which hand over to this event loop."""
        loop, inbox = asyncio.get_running_loop(), self._inbox

        def hand_over(kind: str) -> Callable[[Any], None]:
            def call(item: Any) -> None:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(inbox.put_nowait, (kind, item))

            return call

        return Listener(hand_over("messages"), hand_over("marks"), hand_over("error"))

    async def _check(self, reader: KafkaReader, marks: Sequence[LogMark]) -> None:
        """Compare the marks beside the committed offsets with the event log."""
        if self.log is None:
            return
        for mark in marks:
            await self.log.check(mark)
        if any(mark.log != self.log.mark.log for mark in marks):
            reader.renote(self.log.mark)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Commit the batch, in one call with the batches of other lanes that wait.

        Raises:
            UpstreamFenced: Another reader has taken over the group.
            StreamError: The brokers do not answer, or the lane is not assigned now.
        """
        error = await self._advances.submit(batch)
        if error is not None:
            raise error

    def get_advance_lane(self, broker_payload: KafkaMessage) -> Hashable:
        """Return the topic and partition, with a part of the topic's id."""
        return broker_payload.lane

    def get_position(self, broker_payload: KafkaMessage) -> int | None:
        """Return the message's offset."""
        return broker_payload.position

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the last offset of the partition, as of the last fetch."""
        partition = None if self._reader is None else self._reader.partitions.of_lane(str(lane))
        return None if partition is None else partition.end_position

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the offset before the committed one, or None until the first commit."""
        partition = None if self._reader is None else self._reader.partitions.of_lane(str(lane))
        return None if partition is None else partition.committed_position

    def get_unread(self) -> int | None:
        """Return the number of messages that are not yielded, as of the last fetch, or None before the partitions are assigned."""
        unread = None if self._reader is None else self._reader.unread
        return None if unread is None else max(0, unread - self._batch_size + length_hint(self._batch))

    def get_errors(self) -> Mapping[str, str]:
        """Return the lanes with deleted messages, the topics that cannot be read, and whether the brokers are away."""
        return {} if self._reader is None else dict(self._reader.problems)

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed message, decoded again. Raises `StreamError` or `UpstreamError` if the schema registry does not answer."""
        topics = self._topics
        if topics.schema_registry is None:
            return decode_again(decoder_of(topics.decode), message)
        async with self._decoding_again:
            try:
                if self._values is None:
                    connection = await aget_connection(topics.schema_registry)
                    self._values = await asyncio.to_thread(partial(open_decoder, topics.decode, connection, unknown_seconds=0))
                return await asyncio.to_thread(decode_again, self._values[0], message)
            except BaseException:  # the connection may have changed, and a cancelled call still uses this client
                self._values = None
                raise

    async def aclose(self) -> None:
        """Leave the cluster. A static member stays in its group, so that the next reader replaces it at once."""
        if self._values is not None and self._values[1] is not None:
            self._values[1].close()
        reader = self._reader
        if reader is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_COMMIT_SECONDS):
                await self._advances.aclose()
        if self._seek is not None:
            self._seek.stop()
        reader.stop()
        await asyncio.get_running_loop().run_in_executor(None, reader.join, CLOSE_SECONDS)
        if reader.is_alive():
            log.warning("consumer of Kafka left behind", group=self._topics.group, seconds=CLOSE_SECONDS)
        await self._advances.aclose()

    async def _commit(self, batches: list[Sequence[AdvanceItem]]) -> list[HeadraceError | None]:
        reader = self._reader
        if reader is None:
            raise StreamError("The reading of Kafka has not begun.")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[HeadraceError | None]] = loop.create_future()

        def finish(errors: list[HeadraceError | None]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_set, done, errors)

        reader.commit(CommitRequest([_answers(batch) for batch in batches], None if self.log is None else self.log.mark, finish))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await done
        except TimeoutError:
            raise StreamError(f"The offsets are not committed after {ANSWER_SECONDS:g} s.", hint="The commit is repeated.") from None


def _answers(batch: Sequence[AdvanceItem]) -> Answers:
    last: KafkaMessage = batch[-1].broker_payload
    failed = next((item.broker_payload.position for item in batch if item.outcome.failed), None)
    if last.partition is None or last.position is None:
        raise StreamError("A message of another process cannot be committed.")
    return Answers(last.partition, last.position, failed)


def _set(done: asyncio.Future[list[HeadraceError | None]], errors: list[HeadraceError | None]) -> None:
    if not done.done():
        done.set_result(errors)
