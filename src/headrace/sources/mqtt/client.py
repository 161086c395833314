"""One connection to a server, by the client library paho-mqtt. The event loop drives its socket; only the opening uses a thread.

The connection does not reconnect by itself: it ends, and the stream opens again. So what a stream has delivered stays in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from secrets import token_hex
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any, Final, TypeVar

import structlog

from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.mqtt.library import new_client
from headrace.sources.mqtt.publish_packet import ReceivedMessage
from headrace.sources.mqtt.server_errors import described, rejected
from headrace.sources.mqtt.settings import Address

ANSWER_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 10.0
CHECK_SECONDS: Final = 0.5
"""Time between two checks of the keepalive."""
MAX_PACKETS_PER_STEP: Final = 100
"""Packets that one step of the loop reads, so that other tasks run between."""
QOS: Final = 1
FAILURE: Final = 128
"""The first reason code of a failure."""
MAX_PACKET_BYTES: Final = 268_435_455
"""The limit of the protocol."""
UNREACHABLE: Final = "MQTT cannot be reached"
ENDED: Final = "The connection to MQTT has ended"

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Session:
    """What the server says of a session when it is connected.

    `expiry` is the time in seconds for which it outlives its connection. `max_packet_bytes` is the size of the largest packet.
    """

    def __init__(self, properties: Any, expiry: int, *, is_present: bool) -> None:
        self.is_present = is_present
        self.expiry = int(getattr(properties, "SessionExpiryInterval", expiry))
        self.max_packet_bytes = int(getattr(properties, "MaximumPacketSize", MAX_PACKET_BYTES))
        self.has_qos = getattr(properties, "MaximumQoS", QOS) >= QOS


class MqttClient:
    """One connection. `on_message` gets each message, and `on_end` the error when the connection ends by itself. Neither may block."""

    def __init__(self, on_message: Callable[[ReceivedMessage], None], on_end: Callable[[HeadraceError], None]) -> None:
        self._on_message = on_message
        self._on_end = on_end
        self._client: Any = None
        self._loop = asyncio.get_running_loop()
        self._connecting: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._session: asyncio.Future[tuple[bool, Any]] = self._loop.create_future()
        self._requests: dict[int, asyncio.Future[Sequence[Any]]] = {}
        self._received = 0
        self._unused_filter = f"headrace/confirm/{token_hex(8)}"
        self._confirmation: asyncio.Future[Sequence[Any]] | None = None
        self._is_paused = False
        self._pauses = 0
        self._is_reading = False
        self._is_closed = False
        self._keepalive = 0
        self._failure: HeadraceError | None = None

    async def open(self, address: Address, client_id: str, *, expiry: int, receive_maximum: int) -> Session:
        """Connect, take the session of `client_id`, or begin it, and return what the server says of it.

        Raises:
            UpstreamError: The client library is missing, or the server refuses the credentials, the client_id or the certificate.
            StreamError: The server does not answer.
        """
        client = await asyncio.to_thread(new_client, address, client_id)
        self._client, self._keepalive = client, address.keepalive
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties: Any = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = expiry
        properties.ReceiveMaximum = receive_maximum
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_subscribe = client.on_unsubscribe = self._answered
        client.on_publish = self._published
        client.on_message = self._arrived
        connect = asyncio.to_thread(client.connect, address.host, address.port, address.keepalive, clean_start=False, properties=properties)
        self._connecting = asyncio.create_task(connect, name="headrace mqtt connection")
        try:
            # A thread cannot be cancelled: `aclose` waits for it.
            await asyncio.shield(self._connecting)
            self._drive()
            is_present, accepted = await self._answer_of(self._session)
        except Exception as error:
            raise described(UNREACHABLE, error) from None
        return Session(accepted, expiry, is_present=is_present)

    async def subscribe(self, filters: Sequence[str]) -> None:
        """Subscribe to topics with QoS 1. A new subscription gets the retained messages of its topics.

        Raises:
            UpstreamError: The server refuses a filter, or grants QoS 0 only.
            StreamError: The server does not answer.
        """
        from paho.mqtt.subscribeoptions import SubscribeOptions

        options = SubscribeOptions(qos=QOS, retainAsPublished=True, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        try:
            reasons = await self._answer_of(self._request(lambda: self._client.subscribe([(one, options) for one in filters])))
        except Exception as error:
            raise described("The topics cannot be subscribed to", error) from None
        if len(reasons) != len(filters):
            raise StreamError(f"The server has answered {len(reasons)} of {len(filters)} subscriptions.")
        for name, reason in zip(filters, reasons, strict=True):
            if reason.value >= FAILURE:
                raise rejected(f"The topic filter {name!r} cannot be subscribed to", reason)
            if reason.value < QOS:
                raise _qos_error(name)

    async def publish(self, what: str, topic: str, payload: bytes, user_properties: Sequence[tuple[str, str]]) -> Any:
        """Publish a message with QoS 1, and return the reason code of the server. Messages are sent in the order of the calls.

        Raises:
            StreamError: The connection has ended, or the server does not answer. `what` names what failed.
        """
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties: Any = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = list(user_properties)
        try:
            (reason,) = await self._answer_of(self._request(lambda: self._send(topic, payload, properties)))
        except Exception as error:
            raise described(what, error) from None
        return reason

    def acknowledge(self, packets: Sequence[int]) -> None:
        """Acknowledge messages, unless the connection has ended."""
        if self._failure is None and not self._is_closed:
            for packet in packets:
                self._client.ack(packet, QOS)

    async def confirm(self) -> None:
        """Wait until the server has taken the acknowledgements.

        MQTT confirms no acknowledgement. But a server reads the packets of a connection in order. So it has taken them when it answers a
        request that follows: the end of a subscription that does not exist. While the reading is paused, nothing is confirmed: the answer
        would come after all messages that the server has sent.

        Raises:
            StreamError: The connection has ended, or the server does not answer.
        """
        if self._failure is not None:
            raise self._failure
        if self._is_paused:
            return
        try:
            self._confirmation = self._request(lambda: self._client.unsubscribe(self._unused_filter))
            await self._answer_of(self._confirmation)
        except Exception as error:
            raise described("The messages cannot be acknowledged", error) from None

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read from the socket."""
        return self._is_paused

    def pause(self) -> None:
        """Read no more from the socket."""
        self._is_paused = True
        self._pauses += 1
        if self._confirmation is not None and not self._confirmation.done():
            self._confirmation.set_result([])
        self._update_reading()

    def resume(self) -> None:
        """Read again from the socket."""
        self._is_paused = False
        self._update_reading()

    async def aclose(self) -> None:
        """Close the connection. The server keeps the session."""
        self._is_closed = True
        self._end_requests(StreamError("The connection to MQTT is closed."))
        tasks = [task for task in (self._connecting, self._checking) if task is not None]
        if self._connecting is not None:
            self._connecting.add_done_callback(self._connecting_ended)
        if self._checking is not None:
            self._checking.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            if left:
                log.warning("connection to mqtt left behind", seconds=CLOSE_SECONDS)

    def _drive(self) -> None:
        """Read and write the socket in the loop from now on."""
        client = self._client
        client.on_socket_close = self._remove_callbacks
        client.on_socket_register_write = lambda _client, _userdata, socket: self._loop.add_writer(socket, self._write)
        client.on_socket_unregister_write = self._remove_writer
        socket = client.socket()
        if socket is None:
            raise ConnectionError("the server has closed the connection")
        socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)  # else a request waits until the server's system confirms the packet before it
        self._update_reading()
        if client.want_write():
            self._loop.add_writer(socket, self._write)
        self._checking = asyncio.create_task(self._check_keepalive(), name="headrace mqtt keepalive")

    def _update_reading(self) -> None:
        """Begin or end to read the socket."""
        socket = self._client.socket()
        reads = not self._is_paused
        if socket is None or socket.fileno() < 0 or reads == self._is_reading:
            return
        self._is_reading = reads
        if reads:
            self._loop.add_reader(socket, self._read)
            self._loop.call_soon(self._read)  # TLS may hold data that the socket has no more
        else:
            self._loop.remove_reader(socket)

    def _read(self) -> None:
        """Read what the socket has, up to MAX_PACKETS_PER_STEP packets."""
        try:
            for _ in range(MAX_PACKETS_PER_STEP):
                socket = self._client.socket()
                if socket is None or not self._is_reading:
                    return
                received = self._received
                self._client.loop_read()
                if received == self._received and not _has_buffered(socket):
                    return
        except Exception as error:
            self._fail(described(ENDED, error))
        else:
            self._loop.call_soon(self._read)

    def _write(self) -> None:
        try:
            self._client.loop_write()
        except Exception as error:
            self._fail(described(ENDED, error))

    async def _check_keepalive(self) -> None:
        """Send pings, and find a silent connection, until it is cancelled. While the reading is paused, no answer to a ping arrives."""
        sent = self._loop.time()
        while self._failure is None:
            await asyncio.sleep(CHECK_SECONDS)
            if not self._is_paused:
                self._client.loop_misc()
            elif self._loop.time() - sent >= self._keepalive / 2:
                sent = self._loop.time()
                self._client.unsubscribe(self._unused_filter)  # the server ends a connection that sends nothing

    def _connected(self, _client: Any, _userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if self._session.done():
            return
        if reason.is_failure:
            self._session.set_exception(rejected(UNREACHABLE, reason, properties))
        else:
            self._session.set_result((bool(flags.session_present), properties))

    def _disconnected(self, _client: Any, _userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self._fail(rejected(ENDED, reason, properties))
        else:
            self._fail(described(ENDED, ConnectionError(str(reason).lower())))

    def _answered(self, _client: Any, _userdata: Any, packet: int, reasons: Sequence[Any], _properties: Any) -> None:
        answer = self._requests.pop(packet, None)
        if answer is not None and not answer.done():
            answer.set_result(reasons)

    def _published(self, client: Any, userdata: Any, packet: int, reason: Any, properties: Any) -> None:
        self._answered(client, userdata, packet, [reason], properties)

    def _send(self, topic: str, payload: bytes, properties: Any) -> tuple[int, int]:
        sent = self._client.publish(topic, payload, QOS, False, properties)
        return sent.rc, sent.mid

    def _arrived(self, _client: Any, _userdata: Any, message: ReceivedMessage) -> None:
        self._received += 1
        self._on_message(message)

    def _request(self, send: Callable[[], tuple[int, int | None]]) -> asyncio.Future[Sequence[Any]]:
        """Send a request of the client, and return its future answer."""
        if self._failure is not None:
            raise self._failure
        packet = None if self._is_closed else send()[1]
        if packet is None:
            raise ConnectionError("the connection is closed")
        answer: asyncio.Future[Sequence[Any]] = self._loop.create_future()
        self._requests[packet] = answer
        answer.add_done_callback(lambda _: self._requests.pop(packet, None))
        return answer

    async def _answer_of(self, answer: asyncio.Future[T]) -> T:
        """Return an answer. It may take ANSWER_SECONDS, not counted while the reading is paused."""
        try:
            while not answer.done():
                pauses = self._pauses
                await asyncio.wait([answer], timeout=ANSWER_SECONDS)
                if not answer.done() and not self._is_paused and pauses == self._pauses:
                    self._fail(StreamError(f"{ENDED}: no answer after {ANSWER_SECONDS:g} s."))
        except asyncio.CancelledError:
            answer.cancel()
            raise
        return answer.result()

    def _fail(self, error: HeadraceError) -> None:
        """End the connection with this error."""
        if self._is_closed or self._failure is not None:
            return
        self._failure = error
        self._abort()
        self._end_requests(error)
        self._on_end(error)

    def _end_requests(self, error: HeadraceError) -> None:
        """Give an error to all that wait for an answer."""
        answers: list[asyncio.Future[Any]] = [self._session, *self._requests.values()]
        for answer in answers:
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # its caller may have been cancelled

    def _connecting_ended(self, connecting: asyncio.Task[None]) -> None:
        if not connecting.cancelled():
            connecting.exception()  # the opener has raised it, or was cancelled
        self._close_socket()

    def _close_socket(self) -> None:
        """Send the end of the connection to the server, and close the socket at once."""
        if self._client is not None and self._failure is None and self._client.socket() is not None:
            try:
                self._client.disconnect()
                self._client.loop_write()
            except Exception as error:
                log.debug("connection to mqtt not closed in order", error=str(error))
            self._abort()

    def _abort(self) -> None:
        """Close the socket without a word to the server."""
        socket = None if self._client is None else self._client.socket()
        if socket is not None:
            self._remove_callbacks(None, None, socket)
            socket.close()

    def _remove_callbacks(self, _client: Any, _userdata: Any, socket: Any) -> None:
        self._is_reading = False
        if socket.fileno() >= 0:
            self._loop.remove_reader(socket)
        self._remove_writer(None, None, socket)

    def _remove_writer(self, _client: Any, _userdata: Any, socket: Any) -> None:
        if socket.fileno() >= 0:
            self._loop.remove_writer(socket)


def _has_buffered(socket: Any) -> bool:
    """Return whether TLS has data that was read from the socket before."""
    pending = getattr(socket, "pending", None)
    return pending is not None and pending() > 0


def _qos_error(name: str) -> UpstreamError:
    return UpstreamError(
        f"The topic filter {name!r} cannot be subscribed to: the server grants QoS 0 only.", hint="Use a server that supports QoS 1."
    )
