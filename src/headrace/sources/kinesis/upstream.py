"""A stream of Amazon Kinesis as an upstream."""

from __future__ import annotations

import re
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_seconds, check_text
from headrace.sources.declared_decoder import Decoding, DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.kinesis.producer import KinesisArguments, KinesisProducer
from headrace.sources.start import Start, parse_start, serialize_start

MAX_STREAM_CHARS: Final = 128
MAX_GROUP_CHARS: Final = 128
MIN_TABLE_CHARS: Final = 3
MAX_TABLE_CHARS: Final = 255
MIN_INTERVAL_SECONDS: Final = 0.2
MAX_INTERVAL_SECONDS: Final = 60.0
START_EXAMPLE: Final = 'Use "earliest", "latest", or a datetime with a time zone.'
_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]+")


class Kinesis(DecodingUpstream):
    """A stream of Amazon Kinesis. A record becomes a raw event with its partition key, its arrival time and an id.

    A lane is a shard, the position counts its events from 1 on. Progress is in a table of DynamoDB. An aggregated record of the Kinesis
    Producer Library becomes several raw events.

    Args:
        stream: The name of the stream.
        group: The name of this reader in the table. Use it for this upstream only.
        connection: The id of a connection of kind `aws` or `kinesis`, with region, credentials and, if needed, the address.
        table: The name of the table of DynamoDB for progress. Several readers may share it.
        table_connection: The id of the connection to DynamoDB, or None for `connection`. Use it if that has an address.
        start: Where the first reading begins: `"earliest"`, `"latest"`, or a time.
        decode: How a value becomes JSON: `"json"` as it is, `"text"` as `{"text": …}`, `"base64"` as `{"base64": …}`, `"cloudevents"` in
            the JSON format of CloudEvents, `"debezium"` as the change event. Or a function, or its path.
        interval: The seconds between two requests to a shard that has no more records. AWS takes five requests per second and shard, of all
            readers together.
        dead_letter_stream: The stream that gets a copy of each dead letter, or None. It must exist in the account and region of the stream
            that is read, and must be another one.
    """

    def __init__(
        self,
        stream: str,
        *,
        group: str,
        connection: str = "aws",
        table: str = "headrace-kinesis",
        table_connection: str | None = None,
        start: Start | str = "earliest",
        decode: Decoding | ValueFunction = "json",
        interval: float = 0.5,
        dead_letter_stream: str | None = None,
    ) -> None:
        decoding = check_decoding(decode)
        self.decodings = (decoding,)
        self._table_connection = None if table_connection is None else check_text("table_connection", table_connection)
        connection = check_text("connection", connection)
        self._arguments = KinesisArguments(
            _name("stream", stream, 1, MAX_STREAM_CHARS),
            _name("group", group, 1, MAX_GROUP_CHARS),
            connection,
            _name("table", table, MIN_TABLE_CHARS, MAX_TABLE_CHARS),
            self._table_connection or connection,
            parse_start(start, START_EXAMPLE),
            decoding,
            check_seconds("interval", interval, MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS),
            None if dead_letter_stream is None else _other_stream(dead_letter_stream, stream),
        )

    def stream_key(self) -> str:
        """Return `kinesis:` with the connection, the group and the stream."""
        arguments = self._arguments
        return f"kinesis:{arguments.connection}/{arguments.group}/{arguments.stream}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        arguments = self._arguments
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "stream": arguments.stream,
            "group": arguments.group,
            "connection": arguments.connection,
            "table": arguments.table,
            **({} if self._table_connection is None else {"table_connection": self._table_connection}),
            "start": serialize_start(arguments.start),
            "decode": arguments.decode,
            "interval": arguments.interval,
            **({} if arguments.dead_letter_stream is None else {"dead_letter_stream": arguments.dead_letter_stream}),
        }

    def arguments(self) -> KinesisArguments:
        """Return the arguments as a producer needs them."""
        return self._arguments

    def producer(self) -> KinesisProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = KinesisProducer(self._arguments)
        producer.upstream = self
        return producer

    @property
    def dead_letter_target(self) -> str | None:
        """The stream that gets copies of dead letters."""
        name = self._arguments.dead_letter_stream
        return None if name is None else f"stream {name}"

    @property
    def reader_names(self) -> tuple[str, ...]:
        """The reader in the table."""
        arguments = self._arguments
        return (f"reader {arguments.reader!r} of table {arguments.table!r} of connection {arguments.table_connection!r}",)

    @property
    def event_type(self) -> str:
        """The default type of an event from a record."""
        return "headrace.kinesis.record"


def _other_stream(stream: object, read: str) -> str:
    """Return the dead-letter stream. Refuse the one that is read: each dead letter would be read again as a record."""
    name = _name("dead_letter_stream", stream, 1, MAX_STREAM_CHARS)
    if name == read:
        raise UpstreamError(f"The dead-letter stream {name!r} is the stream that is read.", hint="Name another stream.")
    return name


def _name(argument: str, value: object, low: int, high: int) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value) or not low <= len(value) <= high:
        raise UpstreamError(
            f"Invalid {argument} {value!r}.", hint=f"Give its name, not its ARN: {low} to {high} letters, digits, '-', '_' and '.'."
        )
    return value
