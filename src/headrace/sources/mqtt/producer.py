"""Read topics of an MQTT server as a shared stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

import structlog

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import HeadraceError, StreamEnded, StreamError, UpstreamError, UpstreamFenced
from headrace.sources.cancellation import check_cancelled
from headrace.sources.declared_decoder import Decoding, decoder_of
from headrace.sources.decoding import Decoder, decode_again
from headrace.sources.mqtt.client import MqttClient, Session
from headrace.sources.mqtt.message import raw_event
from headrace.sources.mqtt.publish_packet import ReceivedMessage
from headrace.sources.mqtt.settings import address_of
from headrace.sources.mqtt.topics import topic_matcher
from headrace.sources.mqtt.window import Delivery, Window
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection
from headrace.triggers.upstream import SharedStreamProducer

FAILED_SECONDS: Final = 60.0
"""Time after which a failed message ends the connection, so that the server delivers it again. It holds back later acknowledgements."""
MAX_BUFFERED_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the payloads that wait to be taken. Beyond them the reading pauses. One message may be larger."""
SESSION: Final = "session"

log = structlog.get_logger(__name__)


class Subscription(NamedTuple):
    """The arguments of an `Mqtt` upstream, as its producer needs them."""

    topics: Sequence[str]
    client_id: str
    connection: str
    decode: Decoding
    receive_maximum: int
    session_expiry: int
    dead_letter_topic: str | None = None


class MqttProducer(SharedStreamProducer):
    """The producer of an `Mqtt` upstream: yields `Message`s. `advance` acknowledges them.

    A failed message is not acknowledged, nor any later one. After FAILED_SECONDS the stream ends, and the server delivers them again.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._matches = topic_matcher(subscription.topics)
        self._client: MqttClient | None = None
        self._window = Window()
        self._arrivals: deque[tuple[Message, Delivery]] = deque()
        self._buffered_bytes = 0
        self._arrived = asyncio.Event()
        self._failure: HeadraceError | None = None
        self._subscribing: asyncio.Task[None] | None = None
        self._redelivery: asyncio.TimerHandle | None = None
        self._is_confirmed = True
        self._problems: dict[str, str] = {}

    async def open_stream(self) -> AsyncIterator[tuple[Message, Delivery]]:
        """Take the session, subscribe, and yield the messages without end.

        Raises:
            UpstreamError: The connection or a permission is missing, the server lacks a feature, or the client library is missing.
            UpstreamFenced: Another client has connected with the client_id.
            StreamError: The server does not answer, the connection has ended, or a message has failed.
        """
        client = await self._open()
        check_cancelled()
        half = self._subscription.receive_maximum // 2
        while True:
            while not self._arrivals and self._failure is None:
                self._arrived.clear()
                await self._arrived.wait()
            if self._failure is not None:  # what has arrived is delivered again
                raise self._failure
            item = self._arrivals.popleft()
            self._buffered_bytes -= len(item[0].data)
            if client.is_paused and len(self._arrivals) <= half and self._buffered_bytes <= MAX_BUFFERED_BYTES // 2:
                client.resume()
            yield item

    async def _open(self) -> MqttClient:
        arguments = self._subscription
        address = address_of(await aget_connection(arguments.connection))
        decode = decoder_of(arguments.decode)
        client = self._client = MqttClient(lambda message: self._receive(client, decode, message), self._fail)
        session = await client.open(
            address, arguments.client_id, expiry=arguments.session_expiry, receive_maximum=arguments.receive_maximum
        )
        self._check(session)
        # Not awaited: the answer comes after the messages that the session has, which may be many.
        self._subscribing = asyncio.create_task(self._subscribe(client), name="headrace mqtt subscription")
        return client

    async def _subscribe(self, client: MqttClient) -> None:
        try:
            await client.subscribe(self._subscription.topics)
        except HeadraceError as error:
            self._fail(error)

    def _check(self, session: Session) -> None:
        """Refuse a server without QoS 1, and report a session that is missing or ends early."""
        arguments = self._subscription
        if not session.has_qos:
            raise UpstreamError("MQTT cannot be read: the server has QoS 0 only.", hint="Use a server that supports QoS 1.")
        if not session.is_present and self.log is not None and self.log.mark.receipts:
            log.error("session of mqtt missing", client_id=arguments.client_id)
            self._problems[SESSION] = (
                f"The server had no session of {arguments.client_id!r}: it has expired or was deleted. "
                "Messages that were published before this opening are missing."
            )
        elif session.expiry < arguments.session_expiry:
            log.warning("session of mqtt ends early", client_id=arguments.client_id, seconds=session.expiry)
            self._problems[SESSION] = f"The server keeps a session for {session.expiry:,} s only, not for {arguments.session_expiry:,} s."

    def _receive(self, client: MqttClient, decode: Decoder, message: ReceivedMessage) -> None:
        """Take a message from the client."""
        delivery = self._window.receive(message.packet)
        topic = message.topic
        if topic == "":
            self._fail(StreamError("The server has sent a message without a topic: it uses topic aliases, which are not allowed here."))
        elif topic is not None and not self._matches(topic):
            self._skip(topic)
            client.acknowledge(self._window.finish([delivery]))
        else:
            if not message.qos:
                self._report(
                    "qos", f"Messages arrive with QoS 0, such as those of topic {topic!r}. They are lost while no reader is connected."
                )
            raw = raw_event(message, self._subscription.client_id, decode)
            self._arrivals.append((raw, delivery))
            self._buffered_bytes += len(raw.data)
            self._arrived.set()
            # There may be more messages than the limit with QoS 0, or of a server that ignores it.
            if len(self._arrivals) > self._subscription.receive_maximum or self._buffered_bytes > MAX_BUFFERED_BYTES:
                client.pause()

    def _skip(self, topic: str) -> None:
        self._report(
            "subscription",
            f"The session has a subscription that is not declared: messages such as those of topic {topic!r} are skipped. "
            "Use a new client_id, or unsubscribe with it.",
        )

    def _report(self, name: str, problem: str) -> None:
        if name not in self._problems:
            log.warning("messages of mqtt not as declared", problem=problem)
            self._problems[name] = problem

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Acknowledge the answered messages, and wait until the server has taken it.

        Raises:
            StreamEnded: The connection has ended: the server delivers the messages again.
        """
        client = self._client
        if client is None or isinstance(self._failure, UpstreamFenced):
            raise self._failure or StreamError("The reading of MQTT has not begun.")
        if any(item.outcome.failed for item in batch) and self._redelivery is None:
            error = StreamError(f"The stream opens again: a message was not answered {FAILED_SECONDS:g} s ago, and is delivered again.")
            self._redelivery = asyncio.get_running_loop().call_later(FAILED_SECONDS, self._fail, error)
        packets = self._window.finish(item.broker_payload for item in batch if not item.outcome.failed)
        if not packets and self._is_confirmed:
            return
        self._is_confirmed = False
        client.acknowledge(packets)
        try:
            await client.confirm()
        except HeadraceError as error:
            raise StreamEnded(str(error)) from error
        self._is_confirmed = True

    def get_advance_lane(self, broker_payload: Delivery) -> Hashable:
        """Return the client_id: a session is one lane, since MQTT acknowledges in the order of receipt."""
        del broker_payload
        return self._subscription.client_id

    def get_errors(self) -> Mapping[str, str]:
        """Return what is not as declared: a missing session, messages with QoS 0, and other subscriptions of the session."""
        return dict(self._problems)

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed message, decoded again."""
        return decode_again(decoder_of(self._subscription.decode), message)

    async def aclose(self) -> None:
        """Close the connection. The server keeps the session with what was not acknowledged."""
        if self._redelivery is not None:
            self._redelivery.cancel()
        if self._subscribing is not None:
            self._subscribing.cancel()
        if self._client is not None:
            await self._client.aclose()
        if self._subscribing is not None:
            await asyncio.wait([self._subscribing])

    def _fail(self, error: HeadraceError) -> None:
        """End the stream with this error."""
        if self._failure is None:
            self._failure = error
            self._arrived.set()
