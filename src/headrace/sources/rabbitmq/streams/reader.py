"""The consumer of one stream, and looks at the first and the last message of a stream.

The server sends up to `prefetch` messages, or somewhat more, and sends more as they are acknowledged. An acknowledgement of a stream
changes nothing else: messages are acknowledged when they are taken, so that the rest stays at the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

from headrace.errors import HeadraceError, StreamError
from headrace.sources.rabbitmq.client import RabbitConnection, end_of
from headrace.sources.rabbitmq.message import offset_of
from headrace.sources.rabbitmq.streams.lane import Lane
from headrace.sources.rabbitmq.streams.progress import rejection

REQUEST_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 10.0
EMPTY_LOOK_SECONDS: Final = 2.0
"""For a stream that is said to be empty. The server counts the messages of a stream with a delay of some seconds."""
MAX_PREFETCH: Final = 65_535
OFFSET: Final = "x-stream-offset"


class Arrival(NamedTuple):
    """A message as the client delivers it, and the reader of its stream."""

    reader: StreamReader
    message: Any


class StreamReader:
    """Reads one stream from `open` until its connection is closed.

    `on_arrival` gets each message, in order. `on_end` gets the error when the channel or the consumer ends. Neither may block.
    """

    def __init__(
        self,
        connection: RabbitConnection,
        lane: Lane,
        prefetch: int,
        on_arrival: Callable[[Arrival], None],
        on_end: Callable[[HeadraceError], None],
    ) -> None:
        self.lane = lane
        self._connection = connection
        self._prefetch = prefetch
        self._on_arrival = on_arrival
        self._on_end = on_end
        self._channel: Any = None
        self._untaken = 0
        self._unconfirmed = 0
        self._is_closing = False

    async def open(self, offset: str | int | datetime) -> None:
        """Consume from this value of `x-stream-offset` on. Raises `HeadraceError`."""
        try:
            self._channel = channel = await self._connection.channel()
            await channel.basic_qos(prefetch_count=self._prefetch, timeout=REQUEST_SECONDS)
            channel.on_consumer_cancel_callbacks.add(self._cancelled)
            channel.closing.add_done_callback(self._ended)
            await channel.basic_consume(self.lane.stream, self._receive, arguments={OFFSET: offset}, timeout=REQUEST_SECONDS)
        except Exception as error:
            raise rejection(f"Stream {self.lane.stream!r} cannot be read", error) from None

    async def take(self, message: Any) -> None:
        """Record that a message is taken, so that the server sends more."""
        self._untaken -= 1
        self._unconfirmed += 1
        if not self._untaken or self._unconfirmed * 2 >= self._prefetch:
            self._unconfirmed = 0
            try:
                await self._channel.basic_ack(message.delivery_tag, multiple=True, wait=False)
            except Exception as error:
                raise rejection(f"The reading of stream {self.lane.stream!r} has ended", error) from error

    def close(self) -> None:
        """Report no more. The channel ends with its connection."""
        self._is_closing = True

    async def _receive(self, message: Any) -> None:
        self._untaken += 1
        self._on_arrival(Arrival(self, message))

    def _cancelled(self, frame: Any) -> None:
        del frame
        self._fail(
            StreamError(
                f"Stream {self.lane.stream!r} was deleted, or its server has left the cluster: the server has cancelled the consumer.",
                hint="If the stream was deleted, its messages are lost. Create it again, or remove it from the upstream.",
            )
        )

    def _ended(self, closing: asyncio.Future[Any]) -> None:
        self._fail(rejection(f"The reading of stream {self.lane.stream!r} has ended", end_of(closing)))

    def _fail(self, error: HeadraceError) -> None:
        if not self._is_closing:
            self._on_end(error)


async def check_stream(connection: RabbitConnection, stream: str) -> None:
    """Check that a stream of this name can be consumed. Raises `HeadraceError`."""
    try:
        async with connection.temporary_channel() as channel:
            await channel.queue_declare(stream, passive=True, timeout=REQUEST_SECONDS)
            await channel.basic_qos(prefetch_count=1, timeout=REQUEST_SECONDS)
            await channel.basic_consume(stream, _ignore, arguments={OFFSET: "next"}, timeout=REQUEST_SECONDS)
    except Exception as error:
        raise rejection(f"Stream {stream!r} cannot be read", error) from None


async def first_offset(connection: RabbitConnection, stream: str) -> int | None:
    """Return the offset of the first message, or None if the stream is empty. Raises `HeadraceError`."""
    return await _look(connection, stream, "first", 1)


async def last_offset(connection: RabbitConnection, stream: str) -> int | None:
    """Return the offset of the last message, or of one that arrives meanwhile, or None if the stream is empty. Raises `HeadraceError`."""
    return await _look(connection, stream, "last", MAX_PREFETCH)


async def _look(connection: RabbitConnection, stream: str, offset: str, count: int) -> int | None:
    """Return the last offset of the chunk of messages at the begin or the end of a stream, or the first one if `count` is 1."""
    offsets: list[int] = []
    arrived = asyncio.Event()

    async def receive(message: Any) -> None:
        offsets.append(offset_of(message) or 0)
        arrived.set()

    try:
        async with connection.temporary_channel() as channel:
            messages = (await channel.queue_declare(stream, passive=True, timeout=REQUEST_SECONDS)).message_count
            await channel.basic_qos(prefetch_count=count, timeout=REQUEST_SECONDS)
            await channel.basic_consume(stream, receive, arguments={OFFSET: offset}, timeout=REQUEST_SECONDS)
            try:
                async with asyncio.timeout(LOOK_SECONDS if messages else EMPTY_LOOK_SECONDS):
                    await arrived.wait()
            except TimeoutError:
                return None
            # The server sends a chunk as a whole, before it answers the next request of the channel.
            await channel.queue_declare(stream, passive=True, timeout=REQUEST_SECONDS)
    except Exception as error:
        raise rejection(f"Stream {stream!r} cannot be read", error) from None
    return offsets[0] if count == 1 else max(offsets)


async def _ignore(message: Any) -> None:
    del message
