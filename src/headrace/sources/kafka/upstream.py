"""Topics of Apache Kafka as an upstream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from headrace.core.values.shards import MAX_SHARDS, WHOLE, Shard, shard_name
from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_text, one_or_several
from headrace.sources.declared_decoder import DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.decoding import DECODERS
from headrace.sources.kafka.producer import KafkaProducer, Topics
from headrace.sources.kafka.settings import CONFLUENT, KafkaDecoding
from headrace.sources.kafka.start import Start, check_start_topics, parse_start, serialize_start

MAX_TOPIC_CHARS: Final = 249
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
_PATTERN_HINT: Final = (
    "The client library matches POSIX extended regular expressions. Write [0-9] for \\d, (a|b) for (?:a|b), and $ for \\Z. "
    "In brackets, name characters and ranges: [A-Za-z0-9_]."
)
_PATTERN_PARTS: Final = re.compile(r"\\.|\[\^?\]?[^\]]*\]?|\(\?|.", re.DOTALL)
"""An escape, brackets as POSIX ends them, an extension of Python, or another character."""
_OTHER_MEANING: Final = re.compile(r"\\(?![wWsS])[a-zA-Z0-9]|\[.*(\\[a-zA-Z0-9]|\\\]$|\[[:.=]).*|\(\?", re.DOTALL)
"""A part that POSIX extended regular expressions do not have, or read otherwise. `\\w`, `\\s` and their opposites are common extensions."""


class Kafka(DecodingUpstream):
    """Topics of Apache Kafka. A message becomes a raw event with its key, headers and timestamp.

    A lane is a partition, the position is the offset.

    Args:
        topics: The name of a topic, several names, or regular expressions that begin with `^`. New topics that match are read too.
        connection: The id of a connection of kind `kafka`, with address and credentials. Its `extra` has settings of librdkafka.
        group: The consumer group. Use it for this upstream only.
        start: Where the first reading of the group begins: `"earliest"`, `"latest"`, a time, or offsets by topic and partition.
        decode: How a value becomes JSON: `"json"` as it is, `"text"` as `{"text": …}`, `"base64"` as `{"base64": …}`, `"cloudevents"` in
            the JSON format of CloudEvents, `"debezium"` as the change event, `"confluent"` by its schema: Avro, Protobuf or JSON. Or a
            function of the bytes and the headers, or its path: `"shop.decoding:order"`.
        schema_registry: The id of the connection of kind `https` or `http` to the schema registry, for `decode="confluent"`.
        shards: The number of streams in which the partitions are read, from 1 to 256. Partition p of a topic is in shard p mod `shards`.
        shard: The index of the shard that this upstream reads alone, as `split` returns it, or None for all.
        dead_letter_topic: The topic that gets a copy of each dead letter, or None. It must exist, and must not be read here.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        connection: str = "kafka",
        group: str,
        start: Start | str = "earliest",
        decode: KafkaDecoding | ValueFunction = "json",
        schema_registry: str | None = None,
        shards: int = 1,
        shard: int | None = None,
        dead_letter_topic: str | None = None,
    ) -> None:
        self._topics = _topics(topics)
        self._dead_letter_topic = None if dead_letter_topic is None else _other_topic(dead_letter_topic, self._topics)
        self._connection = check_text("connection", connection)
        self._group = check_text("group", group)
        self._start = parse_start(start)
        check_start_topics(self._start, self._topics)
        self._decode = check_decoding(decode, (*DECODERS, CONFLUENT))
        self.decodings = (self._decode,)
        if (decode == CONFLUENT) != (schema_registry is not None):
            raise UpstreamError(
                f"decode={decode!r} and schema_registry={schema_registry!r} do not fit.",
                hint=f'Values with schemas need both: decode="{CONFLUENT}", schema_registry="registry".',
            )
        self._schema_registry = None if schema_registry is None else check_text("schema_registry", schema_registry)
        self._shards = check_integer("shards", shards, 1, MAX_SHARDS)
        self._shard = None if shard is None else check_integer("shard", shard, 0, self._shards - 1)

    def stream_key(self) -> str:
        """Return `kafka:` with the connection, the group and the topics, and the shard if it reads one."""
        whole = self.whole_stream_key()
        return whole if self._shard is None else shard_name(whole, Shard(self._shard, self._shards))

    def whole_stream_key(self) -> str:
        """Return the stream key without a shard."""
        return f"kafka:{self._connection}/{self._group}/{','.join(self._topics)}"

    def split(self) -> tuple[Kafka, ...]:
        """Return one upstream for each shard."""
        if self._shards == 1 or self._shard is not None:
            return (self,)
        _, arguments = self.serialize()
        return tuple(type(self)(**arguments | {"shard": shard}) for shard in range(self._shards))

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        shards = {} if self._shards == 1 else {"shards": self._shards} | ({} if self._shard is None else {"shard": self._shard})
        copied = {} if self._dead_letter_topic is None else {"dead_letter_topic": self._dead_letter_topic}
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "topics": list(self._topics),
            "connection": self._connection,
            "group": self._group,
            "start": serialize_start(self._start),
            "decode": self._decode,
            "schema_registry": self._schema_registry,
            **shards,
            **copied,
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
            stream_key=self.whole_stream_key(),
            shard=WHOLE if self._shard is None else Shard(self._shard, self._shards),
            dead_letter_topic=self._dead_letter_topic,
        )

    def producer(self) -> KafkaProducer:
        """Return a new producer. It connects in `open_stream`.

        Raises:
            UpstreamError: The upstream has several shards, which are read one by one.
        """
        if self._shards > 1 and self._shard is None:
            raise UpstreamError(
                f"{self.whole_stream_key()} is read in {self._shards} shards, each a stream of its own.",
                hint="A watch reads all of them. In Python, declare a trigger for each upstream that split() returns.",
            )
        producer = KafkaProducer(self.description())
        producer.upstream = self
        return producer

    @property
    def dead_letter_target(self) -> str | None:
        """The topic that gets copies of dead letters."""
        return None if self._dead_letter_topic is None else f"topic {self._dead_letter_topic}"

    @property
    def reader_names(self) -> tuple[str, ...]:
        """The consumer group."""
        return (f"consumer group {self._group!r} of connection {self._connection!r}",)

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.kafka.message"


def _topics(topics: object) -> tuple[str, ...]:
    names = one_or_several("topics", topics)
    if not names:
        raise UpstreamError("No topics are given.", hint='Name one or several: Kafka("orders", group="shop").')
    for name in names:
        _check_topic(name)
    return tuple(sorted(set(names)))


def _check_topic(name: object) -> None:
    if not isinstance(name, str):
        raise UpstreamError(f"Invalid topic {name!r}: it is not a text.")
    if name.startswith("^"):
        for part in _PATTERN_PARTS.findall(name):
            if _OTHER_MEANING.fullmatch(part):
                raise UpstreamError(f"Invalid pattern of topics {name!r}: the client library reads {part!r} otherwise.", hint=_PATTERN_HINT)
        try:
            re.compile(name)
        except re.error as error:
            raise UpstreamError(f"Invalid pattern of topics {name!r}: {error}.", hint="Write it like ^orders\\..*") from None
    elif not _TOPIC.fullmatch(name) or len(name) > MAX_TOPIC_CHARS or name in (".", ".."):
        raise UpstreamError(
            f"Invalid topic {name!r}.",
            hint=f"A name has up to {MAX_TOPIC_CHARS} letters, digits, '.', '_' and '-'. A pattern begins with '^'.",
        )


def _other_topic(topic: object, read: Sequence[str]) -> str:
    """Return the dead-letter topic. Refuse one that is read: each dead letter would be read again as a message."""
    if not isinstance(topic, str) or topic.startswith("^"):
        raise UpstreamError(f"Invalid dead_letter_topic {topic!r}: it is not the name of one topic.")
    _check_topic(topic)
    for name in read:
        if name == topic or (name.startswith("^") and re.match(name, topic)):
            raise UpstreamError(
                f"The dead-letter topic {topic!r} is one of the topics that are read: {name!r}.",
                hint="Name another topic, or narrow the pattern.",
            )
    return topic
