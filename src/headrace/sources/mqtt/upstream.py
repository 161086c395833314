"""Topics of an MQTT 5 server as an upstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_text
from headrace.sources.declared_decoder import Decoding, DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.mqtt.producer import MqttProducer, Subscription
from headrace.sources.mqtt.topics import check_dead_letter_topic, check_filters

MAX_CLIENT_ID_BYTES: Final = 256
MAX_RECEIVE_MAXIMUM: Final = 65_535
MIN_EXPIRY_SECONDS: Final = 60
MAX_EXPIRY_SECONDS: Final = 4_294_967_295
"""A session with this time does not expire."""


class Mqtt(DecodingUpstream):
    """Topics of an MQTT 5 server, read with QoS 1 in a session that outlives its connections.

    A message becomes a raw event with its topic as key, and its user properties as headers. The session is one lane. Messages have neither
    a position nor an id: a watch declares `id=`.

    Args:
        topics: A topic filter, or several. `+` stands for one level, and `#` at the end for all further levels.
        client_id: The name of the session at the server. The server keeps messages for it from its first connection on. Give each upstream
            one of its own: a second client with the same one ends the first.
        connection: The id of a connection of kind `mqtt` or `mqtts`, with address and credentials.
        decode: How a payload becomes JSON: `"json"` as it is, `"text"` as `{"text": …}`, `"base64"` as `{"base64": …}`, `"cloudevents"` in
            the JSON format of CloudEvents, `"debezium"` as the change event. Or a function, or its path.
        receive_maximum: The number of messages that the server sends at most before they are acknowledged.
        session_expiry: The seconds for which the server keeps the session, and messages for it, while no reader is connected.
        dead_letter_topic: The topic that gets a copy of each dead letter of Headrace, with its reason, or None. It must not be read here.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        client_id: str,
        connection: str = "mqtt",
        decode: Decoding | ValueFunction = "json",
        receive_maximum: int = 1_000,
        session_expiry: int = 604_800,
        dead_letter_topic: str | None = None,
    ) -> None:
        decoding = check_decoding(decode)
        self.decodings = (decoding,)
        filters = check_filters(topics)
        self._subscription = Subscription(
            filters,
            _client_id(client_id),
            check_text("connection", connection),
            decoding,
            check_integer("receive_maximum", receive_maximum, 1, MAX_RECEIVE_MAXIMUM, "messages"),
            check_integer("session_expiry", session_expiry, MIN_EXPIRY_SECONDS, MAX_EXPIRY_SECONDS, "seconds"),
            None if dead_letter_topic is None else check_dead_letter_topic(dead_letter_topic, filters),
        )

    def stream_key(self) -> str:
        """Return `mqtt:` with the connection, the client_id and the topic filters."""
        subscription = self._subscription
        return f"mqtt:{subscription.connection}/{subscription.client_id}/{','.join(subscription.topics)}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        arguments = self._subscription._asdict() | {"topics": list(self._subscription.topics)}
        if arguments["dead_letter_topic"] is None:
            del arguments["dead_letter_topic"]
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    def subscription(self) -> Subscription:
        """Return the arguments as a producer needs them."""
        return self._subscription

    def producer(self) -> MqttProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = MqttProducer(self._subscription)
        producer.upstream = self
        return producer

    @property
    def dead_letter_target(self) -> str | None:
        """The topic that gets copies of dead letters."""
        topic = self._subscription.dead_letter_topic
        return None if topic is None else f"topic {topic}"

    @property
    def reader_names(self) -> tuple[str, ...]:
        """The session, which has one reader."""
        return (f"client_id {self._subscription.client_id!r} of connection {self._subscription.connection!r}",)

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.mqtt.message"


def _client_id(name: object) -> str:
    text = check_text("client_id", name)
    if len(text.encode(errors="replace")) > MAX_CLIENT_ID_BYTES or not text.isprintable():
        raise UpstreamError(f"Invalid client_id {text[:80]!r}.", hint=f"Give a text of up to {MAX_CLIENT_ID_BYTES} printable bytes.")
    return text
