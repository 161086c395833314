"""Topics of Apache Pulsar as an upstream."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_text
from headrace.sources.declared_decoder import Decoding, DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.pulsar.producer import PulsarProducer
from headrace.sources.pulsar.subscriptions import Description
from headrace.sources.pulsar.topics import check_topics, full_name
from headrace.sources.start import Start, parse_start, serialize_start

MAX_SUBSCRIPTION_CHARS: Final = 200
MAX_QUEUE_MESSAGES: Final = 100_000
START_EXAMPLE: Final = 'Use "earliest", "latest" or a datetime with a time zone.'


class Pulsar(DecodingUpstream):
    """Topics of Apache Pulsar, read with a subscription. A message becomes a raw event with its key, its properties and its publish time.

    A lane is a partition, or a topic without partitions.

    Args:
        topics: The name of a topic, such as `"persistent://tenant/namespace/topic"`, or several.
        subscription: The subscription of each topic. Use it for this upstream only.
        connection: The id of a connection of kind `pulsar` or `pulsar+ssl`, with addresses and credentials.
        start: Where the first reading begins: `"earliest"`, `"latest"`, or a time.
        decode: How a value becomes JSON: `"json"` as it is, `"text"` as `{"text": …}`, `"base64"` as `{"base64": …}`, `"cloudevents"` in
            the JSON format of CloudEvents, `"debezium"` as the change event. Or a function, or its path.
        receiver_queue_size: How many messages the client holds for all partitions together before the stream takes them. Lower it for
            large messages.
        dead_letter_topic: The topic that gets a copy of each dead letter, or None. It must exist, and must not be read here.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        subscription: str,
        connection: str = "pulsar",
        start: Start | str = "earliest",
        decode: Decoding | ValueFunction = "json",
        receiver_queue_size: int = 1_000,
        dead_letter_topic: str | None = None,
    ) -> None:
        if len(check_text("subscription", subscription)) > MAX_SUBSCRIPTION_CHARS:
            raise UpstreamError(f"Invalid subscription {subscription[:20]!r}…: it has more than {MAX_SUBSCRIPTION_CHARS} characters.")
        self._decode = check_decoding(decode)
        self.decodings = (self._decode,)
        names = check_topics(topics)
        begin = parse_start(start, START_EXAMPLE)
        if isinstance(begin, datetime) and begin < datetime(1970, 1, 1, tzinfo=UTC):
            raise UpstreamError(f"Invalid start {begin.isoformat()}: it is before 1970.", hint='Use "earliest".')
        self._description = Description(
            names,
            subscription,
            check_text("connection", connection),
            begin,
            self._decode,
            check_integer("receiver_queue_size", receiver_queue_size, 1, MAX_QUEUE_MESSAGES),
            None if dead_letter_topic is None else _other_topic(dead_letter_topic, names),
        )

    def stream_key(self) -> str:
        """Return `pulsar:` with the connection, the subscription and the topics."""
        description = self._description
        return f"pulsar:{description.connection}/{description.subscription}/{','.join(description.topics)}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        description = self._description
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "topics": list(description.topics),
            "subscription": description.subscription,
            "connection": description.connection,
            "start": serialize_start(description.start),
            "decode": description.decode,
            "receiver_queue_size": description.receiver_queue_size,
            **({} if description.dead_letter_topic is None else {"dead_letter_topic": description.dead_letter_topic}),
        }

    def description(self) -> Description:
        """Return the arguments as a producer needs them."""
        return self._description

    def producer(self) -> PulsarProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = PulsarProducer(self._description)
        producer.upstream = self
        return producer

    @property
    def dead_letter_target(self) -> str | None:
        """The topic that gets copies of dead letters."""
        topic = self._description.dead_letter_topic
        return None if topic is None else f"topic {topic}"

    @property
    def reader_names(self) -> tuple[str, ...]:
        """The subscription of each topic."""
        description = self._description
        where = f"of connection {description.connection!r}"
        return tuple(f"subscription {description.subscription!r} of topic {topic!r} {where}" for topic in description.topics)

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.pulsar.message"


def _other_topic(name: object, read: Sequence[str]) -> str:
    """Return the dead-letter topic. Refuse one that is read: each dead letter would be read again as a message."""
    topic = full_name("dead_letter_topic", name)
    if topic in read:
        raise UpstreamError(f"The dead-letter topic {topic!r} is one of the topics that are read.", hint="Name another topic.")
    return topic
