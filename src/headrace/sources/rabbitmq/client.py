"""The client library, imported when a stream opens, and one connection to a server.

The library is aiormq. aio-pika, which builds on it, adds nothing that this upstream needs. Its robust connection is unfit: after an error
of a channel it subscribes again by itself, so messages come again under new delivery tags while the old ones can no longer be answered.
Its iterator of messages ends without an error when the server closes the channel. Here each end of a connection, channel or consumer is an
error that ends the stream, and the stream opens again from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from logging import CRITICAL, NOTSET, getLogger
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.connections.client_library import import_library
from headrace.sources.connections.tls import client_context
from headrace.sources.rabbitmq.field_decoders import install_decoders
from headrace.sources.rabbitmq.server_errors import described
from headrace.sources.rabbitmq.settings import Address

CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 5.0
ABORT_SECONDS: Final = 2.0
MAX_CHANNELS: Final = 65_535
"""Channels of a connection, if the server sets no limit."""
CLOSE_STEPS: Final = 20
UNREACHABLE: Final = "RabbitMQ cannot be reached"


def load_library() -> Any:
    """Return the module `aiormq`, with decoders that accept all messages. Raises `UpstreamError` if it is not installed."""
    library = import_library("RabbitMQ cannot be read: its client library", "rabbitmq", "aiormq")
    install_decoders()
    logger = getLogger("aiormq.connection")
    if logger.level == NOTSET:
        logger.setLevel(CRITICAL)  # it logs tracebacks of errors that end the stream, which reports them
    return library


class RabbitConnection:
    """One connection. It is never opened again: its end is reported to `on_end`, unless `close` caused it."""

    def __init__(self, connection: Any, transport: _Transport, on_end: Callable[[BaseException], None]) -> None:
        self._connection = connection
        self._transport = transport
        self._on_end = on_end
        self._is_closing = False
        self._last_number = 0

    @classmethod
    async def open(cls, address: Address, on_end: Callable[[BaseException], None]) -> RabbitConnection:
        """Connect within CONNECT_SECONDS.

        Raises:
            UpstreamError: The client library is missing, or the server refuses the credentials, the virtual host or the certificate.
            StreamError: The server does not answer.
        """
        library = await asyncio.to_thread(load_library)
        context = await asyncio.to_thread(client_context, address.tls)
        transport = _Transport(address, context)
        connection = library.Connection(_url(address), transport_factory=transport)
        connection.vhost = address.vhost
        opened = cls(connection, transport, on_end)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection.connect(client_properties={"connection_name": "headrace"})
            connection.closing.add_done_callback(opened._ended)
        except Exception as error:
            await opened.close()
            raise described(UNREACHABLE, transport.failure or error) from None
        except BaseException:
            await opened.close()
            raise
        return opened

    @property
    def version(self) -> str:
        """The version of the server."""
        return _text(self._connection.server_properties.get("version"))

    @property
    def product(self) -> str:
        """The name of the server's software."""
        return _text(self._connection.server_properties.get("product"))

    @property
    def max_frame_bytes(self) -> int | None:
        """The size of the largest frame in bytes, or None without a limit. Properties and headers of a message are one frame."""
        return int(self._connection.connection_tune.frame_max) or None

    async def channel(self, *, confirms: bool = False) -> Any:
        """Open a channel. With `confirms`, a sender waits until its message is in a queue. Raises errors of the client."""
        number = self._next_number()
        return await self._connection.channel(number, publisher_confirms=confirms, on_return_raises=confirms, timeout=CONNECT_SECONDS)

    def _next_number(self) -> int:
        """Return the number of the next channel. Numbers are used in turn.

        The client would take the number of a channel that the server has closed at once. It may then send the new `channel.open`
        before it confirms the old end, and the server ends the connection.
        """
        channels, limit = self._connection.channels, self._connection.connection_tune.channel_max or MAX_CHANNELS
        for _ in range(limit):
            self._last_number = self._last_number % limit + 1
            if self._last_number not in channels:
                return self._last_number
        raise UpstreamError(
            f"The connection has {limit} channels, and the server allows no more.",
            hint="Read fewer queues or streams in one upstream, or raise channel_max of the server.",
        )

    @asynccontextmanager
    async def temporary_channel(self) -> AsyncIterator[Any]:
        """Open a channel for some requests, and close it. The server closes it itself if it refuses a request."""
        channel = await self.channel()
        try:
            yield channel
        finally:
            await channel.close(timeout=CLOSE_SECONDS)

    async def close(self) -> None:
        """Close the connection, within CLOSE_SECONDS if the server does not answer. The server requeues what was not acknowledged."""
        self._is_closing = True
        try:
            await self._connection.close(timeout=CLOSE_SECONDS)
        except TimeoutError:
            self._transport.abort()
            with suppress(TimeoutError):
                await self._connection.close(timeout=ABORT_SECONDS)
        finally:
            self._transport.abort()
        # The client leaves a task behind that ends by itself within a few steps of the loop.
        for _ in range(CLOSE_STEPS):
            await asyncio.sleep(0)

    def _ended(self, closing: asyncio.Future[Any]) -> None:
        if not self._is_closing:
            self._on_end(end_of(closing))


class _Transport:
    """The socket of a connection. `failure` says why it could not be opened."""

    def __init__(self, address: Address, context: Any) -> None:
        self._address = address
        self._context = context
        self._writer: asyncio.StreamWriter | None = None
        self.failure: OSError | None = None

    async def create(self, url: Any, **_: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the socket. The client calls it."""
        del url
        try:
            reader, self._writer = await asyncio.open_connection(self._address.host, self._address.port, ssl=self._context)
        except OSError as error:
            self.failure = error
            raise
        return reader, self._writer

    def abort(self) -> None:
        """Close the socket at once."""
        if self._writer is not None:
            self._writer.transport.abort()


def end_of(closing: asyncio.Future[Any]) -> BaseException:
    """Return why a connection or channel has ended."""
    if closing.cancelled():
        return ConnectionError("the connection was closed")
    error = closing.exception()
    if error is None:
        return ConnectionError("the connection was closed")
    # The client cancels its reader when it has missed heartbeats.
    return ConnectionError("no heartbeat has arrived") if isinstance(error, asyncio.CancelledError) else error


def _url(address: Address) -> Any:
    from yarl import URL

    return URL.build(
        scheme=address.scheme,
        user=address.login,
        password=address.password,
        host=address.host,
        port=address.port,
        query={"heartbeat": str(address.heartbeat)},
    )


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
