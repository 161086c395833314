"""The client of Pulsar: one connection pool, its consumers and readers. It has threads of its own, which end when it is closed.

A call that is cancelled leaves its request to the client, which drops the answer. So a client is always closed, and its end is awaited. It
ends the process if a consumer is released that waits for a message and is not closed: consumers are held until the client has closed them.
Its threads end when it is closed and no reference to a consumer is left.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import structlog

from headrace.core.connection import Connection
from headrace.errors import StreamError
from headrace.sources.connections.client_library import import_library
from headrace.sources.pulsar.admin import AdminApi
from headrace.sources.pulsar.server_errors import BUSY, described, result_of
from headrace.sources.pulsar.settings import Settings, settings_of

OPERATION_SECONDS: Final = 10
CONNECT_MS: Final = 5_000
CLOSE_SECONDS: Final = 5.0
"""Time for an orderly end. After it, the connections are cut."""
HANDLERS_SECONDS: Final = 0.05
"""Time for handlers that a closed consumer has cancelled: they hold its event loop, and stay in it if it ends first."""
BUSY_SECONDS: Final = 10.0
"""Time in which the broker notices that the connection of the last reader was closed."""
BUSY_PAUSE_SECONDS: Final = 0.1
MAX_CHUNKED_MESSAGES: Final = 0
"""Incomplete chunked messages of a consumer: unlimited, because the client drops the oldest beyond a limit."""
LAST_BATCH_INDEX: Final = 2**31 - 1
NO_TOPIC: Final = "persistent://headrace-probe/none/none"
"""A topic that does not exist. A broker cannot create it, because its tenant does not exist."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class PulsarClient:
    """The connections to the brokers of one cluster."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._library: Any = None
        self._client: Any = None
        self._closing: asyncio.Task[None] | None = None
        self._receivers: list[Any] = []

    async def open(self) -> None:
        """Import the client library and create the client, which connects with the first request. Raises `UpstreamError`."""
        self._library = await asyncio.to_thread(
            import_library, "Pulsar cannot be reached: its client library", "pulsar", "pulsar", "pulsar.asyncio"
        )
        pulsar, settings = self._library, self._settings
        options: dict[str, Any] = {}
        tls = settings.tls or {}
        if settings.token is not None:
            options["authentication"] = pulsar.AuthenticationToken(settings.token)
        elif "certfile" in tls:
            options["authentication"] = pulsar.AuthenticationTLS(tls["certfile"], tls["keyfile"])
        if "cafile" in tls:
            options["tls_trust_certs_file_path"] = tls["cafile"]
        if settings.listener_name is not None:
            options["listener_name"] = settings.listener_name
        try:
            self._client = pulsar.asyncio.Client(
                settings.service_url,
                operation_timeout_seconds=OPERATION_SECONDS,
                connection_timeout_ms=CONNECT_MS,
                tls_validate_hostname=True,
                # By default it writes to the standard output. Results have what an operator needs.
                logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
                **options,
            )
        except Exception as error:
            raise described(f"Pulsar cannot be reached at {settings.service_url}", error) from error

    async def subscribe(self, topic: str, subscription: str, name: str, queue_size: int) -> Any:
        """Become the only consumer of a subscription. One that is missing is created at the earliest message.

        Raises:
            UpstreamError: The topic or a permission is missing.
            StreamError: The subscription has another consumer, or the broker does not answer.
        """
        what = f"Topic {topic} cannot be read with subscription {subscription!r}"
        until = asyncio.get_running_loop().time() + BUSY_SECONDS
        while True:
            try:
                consumer = await self._opened(what).subscribe(
                    topic,
                    subscription,
                    consumer_type=self._library.ConsumerType.Exclusive,
                    initial_position=self._library.InitialPosition.Earliest,
                    consumer_name=name,
                    receiver_queue_size=queue_size,
                    max_pending_chunked_message=MAX_CHUNKED_MESSAGES,
                    batch_index_ack_enabled=True,
                )
            except Exception as error:
                if result_of(error) != BUSY or asyncio.get_running_loop().time() > until:
                    raise described(what, error) from error
            else:
                self._receivers.append(consumer)
                return consumer
            await asyncio.sleep(BUSY_PAUSE_SECONDS)

    async def create_reader(self, topic: str, after: tuple[int, int] | None) -> Any:
        """Return a reader of the messages after an entry, or of all. It acknowledges nothing. Raises as `subscribe` does."""
        what = f"Topic {topic} cannot be read"
        start = self._library.MessageId.earliest
        if after is not None:  # with the index -1, the reader would begin with the messages of a batch in this entry
            start = self._library.MessageId(-1, *after, LAST_BATCH_INDEX)
        reader = await self._call(what, self._opened(what).create_reader(topic, start, receiver_queue_size=100))
        self._receivers.append(reader)
        return reader

    async def create_producer(self, topic: str) -> Any:
        """Return a producer that sends each message by itself. Raises `HeadraceError`."""
        what = f"Topic {topic} cannot be written"
        return await self._call(what, self._opened(what).create_producer(topic, batching_enabled=False))

    async def check(self) -> None:
        """Log in at a broker. Raises `HeadraceError`."""
        what = f"Pulsar cannot be reached at {self._settings.service_url}"
        try:
            await self._opened(what).get_topic_partitions(NO_TOPIC)
        except Exception as error:
            if result_of(error) not in ("TopicNotFound", "AuthorizationError"):
                raise described(what, error) from error

    async def aclose(self) -> None:
        """Send the acknowledgements that wait, close all consumers and end the threads. It goes on if it is cancelled."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="headrace pulsar client close")
        await asyncio.wait([self._closing])

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        closing = asyncio.ensure_future(self._end(client))
        done, _ = await asyncio.wait([closing], timeout=CLOSE_SECONDS)
        if not done:  # the broker does not answer
            closing.cancel()
            await asyncio.to_thread(client.shutdown)
        elif (error := closing.exception()) is not None:
            log.warning("client of pulsar not closed", error=str(error))
        self._receivers.clear()

    async def _end(self, client: Any) -> None:
        """Close the consumers, then the client. It leaves threads behind if it ends before its last handlers of the consumers have run."""
        if self._receivers:
            await asyncio.gather(*(receiver.close() for receiver in self._receivers), return_exceptions=True)
            await asyncio.sleep(HANDLERS_SECONDS)
        await client.close()

    def _opened(self, what: str) -> Any:
        if self._client is None:
            raise StreamError(f"{what}: the connection is not open.")
        return self._client

    async def _call(self, what: str, call: Awaitable[T]) -> T:
        try:
            return await call
        except Exception as error:
            raise described(what, error) from error


def probe(connection: Connection) -> str:
    """Connect to a broker and to the admin API, and return the version. Raises `HeadraceError` with the reason."""
    return asyncio.run(_probe(settings_of(connection)))


async def _probe(settings: Settings) -> str:
    client, admin = PulsarClient(settings), AdminApi(settings)
    try:
        await client.open()
        await admin.open()
        version = await admin.version()
        await client.check()
        return f"Pulsar {version}: broker at {settings.service_url}, admin API at {settings.admin_url}"
    finally:
        await client.aclose()
        await admin.aclose()
