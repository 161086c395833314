"""Read a stream of NATS JetStream as a shared stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import NamedTuple

import structlog

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import HeadraceError, StreamError, UpstreamFenced
from headrace.sources.declared_decoder import Decoding
from headrace.sources.lane_commits import LaneCommits
from headrace.sources.nats.client import ACK, NatsClient
from headrace.sources.nats.consumers import Consumers, Description, look_at_stream
from headrace.sources.nats.lanes import Delivered, Lane
from headrace.sources.nats.message import decode_message_again
from headrace.sources.nats.reader import Reader
from headrace.sources.progress_note import newest_marks
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection
from headrace.triggers.upstream import SharedStreamProducer

log = structlog.get_logger(__name__)


class NatsArguments(NamedTuple):
    """The arguments of a `Nats` upstream, as its producer needs them."""

    connection: str
    consumers: Description
    decode: Decoding
    dead_letter_subject: str | None = None


class NatsProducer(SharedStreamProducer):
    """The producer of a `Nats` upstream. `advance` acknowledges the last message of a batch and waits until the server has stored it.

    A failed message is not acknowledged, nor any later one of its lane. They are read again when the upstream is opened next.
    """

    def __init__(self, arguments: NatsArguments) -> None:
        self._arguments = arguments
        self._client: NatsClient | None = None
        self._reader: Reader | None = None
        self._lanes: dict[str, Lane] = {}
        self._advances = LaneCommits(self._acknowledge)

    async def open_stream(self) -> AsyncIterator[tuple[Message, Delivered]]:
        """Take over the consumers and yield the messages of the stream without end.

        Raises:
            UpstreamError: The connection, the stream or a permission is missing, or the client library is.
            UpstreamFenced: Another reader has taken over a consumer.
            StreamError: The server does not answer, or another program reads with a consumer.
        """
        reader = await self._open()
        try:
            while True:
                yield await reader.next()
        finally:
            reader.stop()

    async def _open(self) -> Reader:
        arguments = self._arguments
        connection = await aget_connection(arguments.connection)
        self._client = client = NatsClient(self._on_failure)
        await client.open(connection)
        stream = await look_at_stream(client, arguments.consumers.stream)
        consumers = Consumers(client, arguments.consumers, stream, None if self.log is None else self.log.mark)
        await consumers.look()
        if self.log is not None:
            for mark in newest_marks(note.mark for note in consumers.notes):
                await self.log.check(mark)
        seek = None if self.log is None else self.log.seek
        moved = {} if seek is None else await consumers.begin_seek(seek)
        await consumers.check_end(moved)
        lanes = await consumers.take_over(moved)
        if seek is not None and moved:
            await seek.finish(moved)
            log.info("positions of nats moved", lanes=len(moved))
        self._lanes = {lane.name: lane for lane in lanes}
        self._reader = reader = Reader(client, arguments.consumers.stream, stream, lanes, arguments.decode)
        for name in consumers.missing:
            log.error("consumer of nats missing and created again", consumer=name)
            reader.problems[name] = (
                f"Consumer {name} was deleted, or its stream was. It is read again from its start. Events that are stored are recognised."
            )
        if client.failure is not None:
            raise client.failure
        await reader.start()
        return reader

    def _on_failure(self, failure: HeadraceError) -> None:
        if self._reader is not None:
            self._reader.fail(failure)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Acknowledge the batch, together with those of other lanes that wait.

        Raises:
            UpstreamFenced: Another reader has taken over the consumer.
            StreamError: The server does not answer.
            UpstreamError: The user may not acknowledge messages.
        """
        await self._advances.submit(batch)

    def get_advance_lane(self, broker_payload: Delivered) -> Hashable:
        """Return the subject filter, with a checksum of the time at which the stream was created."""
        return broker_payload.lane.name

    def get_position(self, broker_payload: Delivered) -> int | None:
        """Return the sequence of the message in the stream."""
        return broker_payload.position

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the sequence of the last message of the lane. It counts messages that were not delivered as if they followed at once."""
        known = self._lanes.get(str(lane))
        return None if known is None else known.end_position

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the acknowledged sequence, or None before the first acknowledgement. It includes what was lost before the opening."""
        known = self._lanes.get(str(lane))
        return None if known is None else known.committed_position

    def get_unread(self) -> int | None:
        """Return the number of messages that are not yielded, as of the last message or look of each lane."""
        return None if self._reader is None else self._reader.unread

    def get_errors(self) -> Mapping[str, str]:
        """Return the lanes with messages that the server removed, and the consumers that were deleted."""
        return {} if self._reader is None else dict(self._reader.problems)

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed message, decoded again."""
        return decode_message_again(message, self._arguments.decode)

    async def aclose(self) -> None:
        """Close the connection. The next reader can start at once."""
        try:
            await self._advances.aclose()
            if self._reader is not None:
                await self._reader.aclose()
        finally:
            if self._client is not None:
                await self._client.aclose()

    async def _acknowledge(self, items: Sequence[AdvanceItem]) -> HeadraceError | None:
        client, reader, lane = self._client, self._reader, items[0].broker_payload.lane
        if client is None or reader is None:
            return StreamError("The reading of NATS has not begun.")
        if isinstance(reader.failure, UpstreamFenced):
            return reader.failure
        answers = lane.answer(items)
        if answers is None:
            return None
        what = f"Message {answers.last} of lane {lane.name} cannot be acknowledged"
        try:
            for reply in answers.replies[:-1]:
                await client.publish(what, reply, ACK)
            is_there = await client.acknowledge(what, answers.replies[-1])
        except HeadraceError as error:
            return error
        if not is_there:
            reader.fail(UpstreamFenced(f"{what}: another reader has taken over consumer {lane.consumer}, or it was deleted."))
            return reader.failure
        lane.confirm(answers)
        return None
