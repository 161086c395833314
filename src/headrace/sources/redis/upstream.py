"""Streams of Redis or Valkey as an upstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_text, one_or_several
from headrace.sources.declared_decoder import Decoding, DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.redis.client import LEASE_SUFFIX
from headrace.sources.redis.entry_ids import NO_ID, id_of, parse_id, position_of
from headrace.sources.redis.groups import LATEST_ID
from headrace.sources.redis.message import EntryFormat
from headrace.sources.redis.producer import RedisProducer
from headrace.sources.redis.reader import Description

MAX_KEY_CHARS: Final = 200
MAX_KEYS: Final = 1_000
MIN_LEASE_SECONDS: Final = 1
MAX_LEASE_SECONDS: Final = 600
_START_HINT: Final = 'Use "earliest", "latest", or the id of an entry such as "1763900000000-0". Reading begins after it.'


class RedisStreams(DecodingUpstream):
    """Streams of Redis or Valkey, read with a consumer group. An entry becomes a raw event with its fields and its time.

    A lane is a stream key, the position is made of the id of the entry.

    Args:
        keys: The key of a stream, or several keys. A key that does not exist is created as an empty stream.
        connection: The id of a connection of kind `redis` or `rediss`, with address and credentials.
        group: The consumer group. Use it for this upstream only.
        payload: The field with the value; the others become headers. Without it, the value is an object of all fields, as texts.
        key: The field with the key of the message.
        decode: How the value of `payload` becomes JSON: `"json"` as it is, `"text"` as `{"text": …}`, `"base64"` as `{"base64": …}`,
            `"cloudevents"` in the JSON format of CloudEvents, `"debezium"` as the change event. Or a function, or its path.
        start: Where the first reading of the group begins: `"earliest"`, `"latest"`, or after the entry with an id.
        lease: The seconds after which another reader may replace one that no longer answers.
        dead_letter_stream: The key of the stream that gets a copy of each dead letter, or None. It must not be read here. A key that does
            not exist is created.
    """

    def __init__(
        self,
        keys: str | Sequence[str],
        *,
        connection: str = "redis",
        group: str,
        payload: str | None = None,
        key: str | None = None,
        decode: Decoding | ValueFunction = "json",
        start: str = "earliest",
        lease: int = 10,
        dead_letter_stream: str | None = None,
    ) -> None:
        self._decode = check_decoding(decode)
        self.decodings = (self._decode,)
        if payload is None and decode != "json":
            raise UpstreamError(f"decode is {decode!r}, and no payload is given.", hint='Name the field with the value: payload="data".')
        self._payload = None if payload is None else check_text("payload", payload)
        self._key = None if key is None else check_text("key", key)
        self._start = _start(start)
        self._keys = _keys(keys)
        self._connection = check_text("connection", connection)
        self._group = check_text("group", group)
        self._lease = check_integer("lease", lease, MIN_LEASE_SECONDS, MAX_LEASE_SECONDS, "seconds")
        self._dead_letter_stream = None if dead_letter_stream is None else _other_key(dead_letter_stream, self._keys)

    def stream_key(self) -> str:
        """Return `redis:` with the connection, the group and the stream keys."""
        return f"redis:{self._connection}/{self._group}/{','.join(self._keys)}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "keys": list(self._keys),
            "connection": self._connection,
            "group": self._group,
            "payload": self._payload,
            "key": self._key,
            "decode": self._decode,
            "start": self._start,
            "lease": self._lease,
            **({} if self._dead_letter_stream is None else {"dead_letter_stream": self._dead_letter_stream}),
        }

    def description(self) -> Description:
        """Return the arguments as a producer needs them."""
        start = {"earliest": NO_ID, "latest": LATEST_ID}.get(self._start, self._start)
        entries = EntryFormat(self._payload, self._key, self._decode)
        return Description(self._keys, self._group, self._connection, start, entries, self._lease, self._dead_letter_stream)

    def producer(self) -> RedisProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = RedisProducer(self.description())
        producer.upstream = self
        return producer

    @property
    def dead_letter_target(self) -> str | None:
        """The stream that gets copies of dead letters."""
        return None if self._dead_letter_stream is None else f"stream {self._dead_letter_stream}"

    @property
    def reader_names(self) -> tuple[str, ...]:
        """The consumer group of each stream key."""
        return tuple(f"consumer group {self._group!r} of {key!r} of connection {self._connection!r}" for key in self._keys)

    @property
    def event_type(self) -> str:
        """The default type of an event from an entry."""
        return "headrace.redis.entry"


def _keys(keys: str | Sequence[str]) -> tuple[str, ...]:
    names = one_or_several("stream keys", keys)
    if not names:
        raise UpstreamError("No stream keys are given.", hint='Name one or several: RedisStreams("orders", group="shop").')
    if len(names) > MAX_KEYS:
        raise UpstreamError(f"{len(names)} stream keys are given: at most {MAX_KEYS}.", hint="Divide them among several upstreams.")
    for name in names:
        if _check_key("stream key", name).endswith(LEASE_SUFFIX):
            raise UpstreamError(
                f"Invalid stream key {name!r}: the lease of another stream has such a key.",
                hint=f"Use a key that does not end in {LEASE_SUFFIX!r}.",
            )
    return tuple(sorted(set(names)))


def _check_key(argument: str, name: object) -> str:
    key = check_text(argument, name)
    if len(key) > MAX_KEY_CHARS:
        raise UpstreamError(f"Invalid {argument} {key[:20]!r}…: it has more than {MAX_KEY_CHARS} characters.")
    return key


def _other_key(name: object, read: Sequence[str]) -> str:
    """Return the key of the dead-letter stream. Refuse one that is read: each dead letter would be read again as an entry."""
    key = _check_key("dead_letter_stream", name)
    if key in read:
        raise UpstreamError(f"The dead-letter stream {key!r} is one of the streams that are read.", hint="Name another stream.")
    return key


def _start(start: object) -> str:
    if start in ("earliest", "latest"):
        return str(start)
    try:
        time_ms, sequence = parse_id(str(start))
    except ValueError:
        raise UpstreamError(f"Invalid start {start!r}.", hint=_START_HINT) from None
    return id_of(position_of(f"{time_ms}-{sequence}"))
