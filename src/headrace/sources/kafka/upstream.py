"""Topics of Apache Kafka as an upstream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.decoding import DECODERS
from headrace.sources.kafka.producer import KafkaProducer, Topics
from headrace.sources.kafka.settings import CONFLUENT, KafkaDecoding
from headrace.sources.kafka.start import Start, parse_start, serialize_start
from headrace.triggers.upstream import Upstream

MAX_TOPIC_CHARS: Final = 249
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")


class Kafka(Upstream):
    """Topics of Apache Kafka. A message becomes a raw event with its key, headers and timestamp.

    A lane is a partition, the position is the offset.

    Args:
        topics: The name of a topic, several names, or regular expressions that begin with `^`. New topics that match are read too.
        connection: The id of a connection of kind `kafka`, with address and credentials. Its `extra` has settings of librdkafka.
        group: The consumer group. Use it for this upstream only.
        start: Where the first reading of the group begins: `"earliest"`, `"latest"`, a time, or offsets by topic and partition.
        decode: How a value becomes JSON: `"json"` as it is, `"text"` as `{"text": …}`, `"base64"` as `{"base64": …}`, `"cloudevents"` in
            the JSON format of CloudEvents, `"debezium"` as the change event, `"confluent"` by its schema: Avro, Protobuf or JSON.
        schema_registry: The id of the connection of kind `https` or `http` to the schema registry, for `decode="confluent"`.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        connection: str = "kafka",
        group: str,
        start: Start | str = "earliest",
        decode: KafkaDecoding = "json",
        schema_registry: str | None = None,
    ) -> None:
        self._topics = _topics(topics)
        self._connection = _text("connection", connection)
        self._group = _text("group", group)
        self._start = parse_start(start)
        if decode != CONFLUENT and decode not in DECODERS:
            raise UpstreamError(f"Invalid decode {decode!r}.", hint=f"Use one of: {', '.join((*DECODERS, CONFLUENT))}.")
        if (decode == CONFLUENT) != (schema_registry is not None):
            raise UpstreamError(
                f"decode={decode!r} and schema_registry={schema_registry!r} do not fit.",
                hint=f'Values with schemas need both: decode="{CONFLUENT}", schema_registry="registry".',
            )
        self._decode = decode
        self._schema_registry = None if schema_registry is None else _text("schema_registry", schema_registry)

    def stream_key(self) -> str:
        """Return `kafka:` with the connection, the group and the topics."""
        return f"kafka:{self._connection}/{self._group}/{','.join(self._topics)}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "topics": list(self._topics),
            "connection": self._connection,
            "group": self._group,
            "start": serialize_start(self._start),
            "decode": self._decode,
            "schema_registry": self._schema_registry,
        }

    def description(self) -> Topics:
        """Return the arguments as a producer needs them."""
        return Topics(
            self._topics,
            self._connection,
            self._group,
            self._start,
            self._decode,
            self._schema_registry,
            stream_key=self.stream_key(),
        )

    def producer(self) -> KafkaProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = KafkaProducer(self.description())
        producer.upstream = self
        return producer

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.kafka.message"


def _topics(topics: str | Sequence[str]) -> tuple[str, ...]:
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names:
        raise UpstreamError("No topics are given.", hint='Name one or several: Kafka("orders", group="shop").')
    for name in names:
        _check_topic(name)
    return tuple(sorted(set(names)))


def _check_topic(name: object) -> None:
    if not isinstance(name, str):
        raise UpstreamError(f"Invalid topic {name!r}: it is not a text.")
    if name.startswith("^"):
        try:
            re.compile(name)
        except re.error as error:
            raise UpstreamError(f"Invalid pattern of topics {name!r}: {error}.", hint="Write it like ^orders\\..*") from None
    elif not _TOPIC.fullmatch(name) or len(name) > MAX_TOPIC_CHARS or name in (".", ".."):
        raise UpstreamError(
            f"Invalid topic {name!r}.",
            hint=f"A name has up to {MAX_TOPIC_CHARS} letters, digits, '.', '_' and '-'. A pattern begins with '^'.",
        )


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise UpstreamError(f"Invalid {name} {value!r}: it is not a text.")
    return value
