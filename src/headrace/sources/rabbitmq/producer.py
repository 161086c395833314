"""Read queues of RabbitMQ as a shared stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

import structlog

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.cancellation import check_cancelled
from headrace.sources.declared_decoder import Decoding, decoder_of
from headrace.sources.decoding import decode_again
from headrace.sources.rabbitmq.client import UNREACHABLE, RabbitConnection
from headrace.sources.rabbitmq.management import check_queues
from headrace.sources.rabbitmq.message import delivery_count, is_from_stream, raw_event
from headrace.sources.rabbitmq.reader import Arrival, QueueReader
from headrace.sources.rabbitmq.server_errors import STREAM_HINT, described
from headrace.sources.rabbitmq.settings import address_of
from headrace.sources.rabbitmq.settlement import Answer
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection
from headrace.triggers.upstream import SharedStreamProducer

MANY_DELIVERIES: Final = 10
"""Deliveries without an acknowledgement after which a message is near the default delivery limit of a quorum queue, 20."""
MAX_CHECK_SECONDS: Final = 5.0
CHECKS_PER_HOLD: Final = 10

log = structlog.get_logger(__name__)


class Queues(NamedTuple):
    """The arguments of a `RabbitMQ` upstream, as its producer needs them."""

    queues: Sequence[str]
    connection: str
    decode: Decoding
    prefetch: int
    dead_letters: bool
    consumer_timeout: int
    dead_letter_queue: str | None = None


class Delivery(NamedTuple):
    """The broker payload of a raw event: the reader of its queue, and its delivery tag there."""

    reader: QueueReader
    tag: int


class RabbitProducer(SharedStreamProducer):
    """The producer of a `RabbitMQ` upstream: yields `Message`s. `advance` acknowledges them.

    A failed message is not acknowledged. After half of the consumer timeout it is requeued. The end of a connection requeues it as well.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._arrivals: asyncio.Queue[Arrival | None] = asyncio.Queue()
        self._failure: HeadraceError | None = None
        self._connection: RabbitConnection | None = None
        self._readers: list[QueueReader] = []
        self._requeues: asyncio.Task[None] | None = None
        self._problems: dict[str, str] = {}
        self._is_near_limit = False

    async def open_stream(self) -> AsyncIterator[tuple[Message, Delivery]]:
        """Consume the queues and yield their messages without end.

        Raises:
            UpstreamError: The connection, a queue or a permission is missing, or the client library is.
            StreamError: The server does not answer, a queue has another reader, or a channel or consumer has ended.
        """
        await self._open()
        check_cancelled()
        decode, is_only_queue = decoder_of(self._queues.decode), len(self._queues.queues) == 1
        while True:
            arrival = await self._arrivals.get()
            # What has arrived on an ended channel is delivered again.
            if self._failure is not None or arrival is None:
                raise self._failure or StreamError("The reading of RabbitMQ has ended.")
            reader, message = arrival
            self._check(reader, message)
            yield raw_event(message, reader.queue, decode, is_only_queue=is_only_queue), Delivery(reader, message.delivery_tag)

    async def _open(self) -> None:
        queues = self._queues
        address = address_of(await aget_connection(queues.connection))
        connection = self._connection = await RabbitConnection.open(address, self._lost)
        await check_queues(address, queues.queues, connection.version)
        for queue in queues.queues:
            reader = QueueReader(connection, queue, queues.prefetch, self._arrivals.put_nowait, self._fail)
            self._readers.append(reader)
            await reader.open()
        self._requeues = asyncio.create_task(self._requeue_failed(), name="headrace requeue of failed messages")
        self._requeues.add_done_callback(self._requeues_ended)

    def _check(self, reader: QueueReader, message: object) -> None:
        """Refuse a stream, and report a message that the queue may soon drop."""
        if is_from_stream(message):
            raise UpstreamError(f"Queue {reader.queue!r} is a stream.", hint=STREAM_HINT)
        if not self._is_near_limit and delivery_count(message) >= MANY_DELIVERIES:
            self._is_near_limit = True
            log.warning("message near the delivery limit", queue=reader.queue, deliveries=delivery_count(message) + 1)
            self._problems[reader.queue] = (
                f"A message was delivered {delivery_count(message) + 1} times. A quorum queue drops it at its delivery limit."
            )

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Acknowledge the answered messages of one queue, and wait until the server has taken it.

        Raises:
            StreamEnded: The channel has ended: the server delivers the messages again.
        """
        if not batch:
            return
        reader: QueueReader = batch[0].broker_payload.reader
        await reader.settle([(item.broker_payload.tag, self._answer(item.outcome)) for item in batch])

    def get_advance_lane(self, broker_payload: Delivery) -> Hashable:
        """Return the queue."""
        return broker_payload.reader.queue

    def get_errors(self) -> Mapping[str, str]:
        """Return the queues with a message near the delivery limit."""
        return dict(self._problems)

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed message, decoded again."""
        return decode_again(decoder_of(self._queues.decode), message)

    async def aclose(self) -> None:
        """Close the connection. The server requeues what was not acknowledged."""
        if self._requeues is not None:
            self._requeues.cancel()
            await asyncio.wait([self._requeues])
        for reader in self._readers:
            await reader.aclose()
        if self._connection is not None:
            await self._connection.close()

    def _answer(self, outcome: AdvanceOutcome) -> Answer:
        if outcome.failed:
            return Answer.FAILED
        return Answer.REJECTED if outcome.rejected and self._queues.dead_letters else Answer.DONE

    async def _requeue_failed(self) -> None:
        """Requeue failed messages before the server closes their channel, until it is cancelled."""
        seconds = self._queues.consumer_timeout / 2
        while True:
            await asyncio.sleep(min(seconds / CHECKS_PER_HOLD, MAX_CHECK_SECONDS))
            for reader in self._readers:
                await reader.requeue_failed(seconds)

    def _requeues_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(described("Failed messages cannot be requeued", error))

    def _lost(self, error: BaseException) -> None:
        self._fail(described("The connection to RabbitMQ has ended" if self._readers else UNREACHABLE, error))

    def _fail(self, error: HeadraceError) -> None:
        """End the stream with this error."""
        if self._failure is None:
            self._failure = error
            self._arrivals.put_nowait(None)
