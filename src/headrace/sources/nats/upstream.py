"""A stream of NATS JetStream as an upstream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_text
from headrace.sources.declared_decoder import Decoding, DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.nats.consumers import Description
from headrace.sources.nats.producer import NatsArguments, NatsProducer
from headrace.sources.nats.start import Start, parse_start, serialize_start
from headrace.sources.nats.subjects import ALL_SUBJECTS, check_dead_letter_subject, check_subjects

MAX_STREAM_CHARS: Final = 255
MAX_DURABLE_CHARS: Final = 100
MAX_ACK_PENDING: Final = 1_000_000
_NAME: Final = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]+")
_DURABLE: Final = re.compile(r"[A-Za-z0-9_-]+")


class Nats(DecodingUpstream):
    """A stream of NATS JetStream. A message becomes a raw event with its subject as key, its headers, timestamp and number of deliveries.

    A lane is a subject filter with a durable consumer of its own, the position is the sequence in the stream.

    Args:
        subjects: A subject filter, or several that do not overlap. Each is a lane.
        stream: The name of the stream.
        durable: The name that the consumers begin with. Use it for this upstream only.
        connection: The id of a connection of kind `nats`, with address and credentials.
        start: Where the first reading begins: `"earliest"`, `"latest"`, the sequence of a message, or a time.
        decode: How a value becomes JSON: `"json"` as it is, `"text"` as `{"text": …}`, `"base64"` as `{"base64": …}`, `"cloudevents"` in
            the JSON format of CloudEvents, `"debezium"` as the change event. Or a function, or its path.
        max_ack_pending: How many messages of a lane the server delivers before the first of them is acknowledged.
        dead_letter_subject: The subject that gets a copy of each dead letter, or None. A stream must listen to it, and it must not be read
            here.
    """

    def __init__(
        self,
        subjects: str | Sequence[str] = ALL_SUBJECTS,
        *,
        stream: str,
        durable: str,
        connection: str = "nats",
        start: Start | str = "earliest",
        decode: Decoding | ValueFunction = "json",
        max_ack_pending: int = 100_000,
        dead_letter_subject: str | None = None,
    ) -> None:
        if not _NAME.fullmatch(check_text("stream", stream)) or len(stream) > MAX_STREAM_CHARS:
            raise UpstreamError(f"Invalid stream {stream!r}.", hint="A name has no spaces, dots, wildcards and slashes.")
        if not _DURABLE.fullmatch(check_text("durable", durable)) or len(durable) > MAX_DURABLE_CHARS:
            raise UpstreamError(f"Invalid durable {durable!r}.", hint=f"A name has up to {MAX_DURABLE_CHARS} letters, digits, '-' and '_'.")
        self._decode = check_decoding(decode)
        self.decodings = (self._decode,)
        self._connection = check_text("connection", connection)
        self._consumers = Description(
            stream,
            durable,
            check_subjects(subjects),
            parse_start(start),
            check_integer("max_ack_pending", max_ack_pending, 1, MAX_ACK_PENDING),
        )
        self._dead_letter_subject: str | None = None
        if dead_letter_subject is not None:
            self._dead_letter_subject = check_dead_letter_subject(dead_letter_subject, self._consumers.subjects)

    def stream_key(self) -> str:
        """Return `nats:` with the connection, the stream, the durable name and the subjects."""
        consumers = self._consumers
        return f"nats:{self._connection}/{consumers.stream}/{consumers.durable}/{','.join(consumers.subjects)}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        consumers = self._consumers
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "subjects": list(consumers.subjects),
            "stream": consumers.stream,
            "durable": consumers.durable,
            "connection": self._connection,
            "start": serialize_start(consumers.start),
            "decode": self._decode,
            "max_ack_pending": consumers.max_ack_pending,
            **({} if self._dead_letter_subject is None else {"dead_letter_subject": self._dead_letter_subject}),
        }

    def arguments(self) -> NatsArguments:
        """Return the arguments as a producer needs them."""
        return NatsArguments(self._connection, self._consumers, self._decode, self._dead_letter_subject)

    def producer(self) -> NatsProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = NatsProducer(self.arguments())
        producer.upstream = self
        return producer

    @property
    def dead_letter_target(self) -> str | None:
        """The subject that gets copies of dead letters."""
        return None if self._dead_letter_subject is None else f"subject {self._dead_letter_subject}"

    @property
    def reader_names(self) -> tuple[str, ...]:
        """The durable consumer of each subject."""
        consumers = self._consumers
        stream = f"stream {consumers.stream!r} of connection {self._connection!r}"
        return tuple(f"durable consumer {consumers.durable!r} of {subject!r} in {stream}" for subject in consumers.subjects)

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.nats.message"
