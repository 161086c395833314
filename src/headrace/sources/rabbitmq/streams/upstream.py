"""Streams of RabbitMQ as an upstream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_text, one_or_several
from headrace.sources.declared_decoder import Decoding, DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.rabbitmq.streams.opening import BIRTHMARK_BYTES, Description
from headrace.sources.rabbitmq.streams.producer import StreamsProducer
from headrace.sources.rabbitmq.streams.progress import Names
from headrace.sources.rabbitmq.streams.start import Start, parse_start, serialize_start
from headrace.sources.rabbitmq.upstream import MAX_PREFETCH, other_queue

MAX_NAME_BYTES: Final = 255
MAX_STREAMS: Final = 1_000
_GROUP: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


class RabbitMQStreams(DecodingUpstream):
    """Streams of RabbitMQ, queues of the type `stream`. A message becomes a raw event with its routing key, headers and timestamp.

    A lane is a stream, the position is the offset.

    Args:
        streams: The name of a stream, or several names.
        group: The name under which the offsets are stored. Use it for this upstream only.
        connection: The id of a connection of kind `amqp` or `amqps`, with address, credentials and virtual host.
        start: Where the first reading begins: `"earliest"`, `"latest"`, the offset of a message, or a time. A time begins with the chunk
            of messages that it is in.
        decode: How a body becomes JSON: `"json"` as it is, `"text"` as `{"text": …}`, `"base64"` as `{"base64": …}`, `"cloudevents"` in
            the JSON format of CloudEvents, `"debezium"` as the change event. Or a function, or its path.
        prefetch: The number of messages of each stream that the server sends ahead, about.
        dead_letter_queue: The queue or stream that gets a copy of each dead letter, or None. It must exist, and must not be read here.
    """

    def __init__(
        self,
        streams: str | Sequence[str],
        *,
        group: str,
        connection: str = "rabbitmq",
        start: Start | str = "earliest",
        decode: Decoding | ValueFunction = "json",
        prefetch: int = 1_000,
        dead_letter_queue: str | None = None,
    ) -> None:
        if not _GROUP.fullmatch(check_text("group", group)):
            raise UpstreamError(f"Invalid group {group!r}.", hint="A name has up to 100 letters, digits, '-' and '_'.")
        self._decode = check_decoding(decode)
        self.decodings = (self._decode,)
        names = _names(streams, group)
        self._description = Description(
            names,
            group,
            check_text("connection", connection),
            parse_start(start),
            self._decode,
            check_integer("prefetch", prefetch, 1, MAX_PREFETCH, "messages"),
            None if dead_letter_queue is None else other_queue(dead_letter_queue, names),
        )

    def stream_key(self) -> str:
        """Return `rabbitmq-streams:` with the connection, the group and the streams."""
        description = self._description
        return f"rabbitmq-streams:{description.connection}/{description.group}/{','.join(description.streams)}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        arguments = self._description._asdict()
        arguments["streams"] = list(self._description.streams)
        arguments["start"] = serialize_start(self._description.start)
        if self._description.dead_letter_queue is None:
            del arguments["dead_letter_queue"]
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    def description(self) -> Description:
        """Return the arguments as a producer needs them."""
        return self._description

    def producer(self) -> StreamsProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = StreamsProducer(self._description)
        producer.upstream = self
        return producer

    @property
    def dead_letter_target(self) -> str | None:
        """The queue that gets copies of dead letters."""
        queue = self._description.dead_letter_queue
        return None if queue is None else f"queue {queue}"

    @property
    def reader_names(self) -> tuple[str, ...]:
        """The streams of the group, each of which has one reader."""
        description = self._description
        where = f"of connection {description.connection!r}"
        return tuple(f"group {description.group!r} of stream {stream!r} {where}" for stream in description.streams)

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.rabbitmq.message"


def _names(streams: str | Sequence[str], group: str) -> tuple[str, ...]:
    names = one_or_several("streams", streams)
    if not names or len(names) > MAX_STREAMS:
        raise UpstreamError(f"Invalid number of streams: {len(names)}.", hint=f"Name 1 to {MAX_STREAMS:,}.")
    for name in names:
        check_text("stream", name)
        if len(Names(group, name).birth("0" * 2 * BIRTHMARK_BYTES).encode()) > MAX_NAME_BYTES:
            raise UpstreamError(
                f"Invalid stream {name!r}: the names of what is stored beside it would be longer than {MAX_NAME_BYTES} bytes.",
                hint="Choose a shorter group.",
            )
    return tuple(sorted(set(names)))
