"""Objects of a bucket as an upstream."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from headrace.core.values.locations import CONNECTIONS, Location, parse_location
from headrace.errors import UpstreamError
from headrace.sources.arguments import check_seconds, check_text
from headrace.sources.declared_decoder import Decoding, DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.objects.azure.queue import StorageQueue
from headrace.sources.objects.location import STATE_FOLDER
from headrace.sources.objects.producer import Description, ObjectProducer, ReadMode
from headrace.sources.sqs.upstream import SQS

QUEUES: Final[Mapping[str, tuple[type[SQS | StorageQueue], str]]] = {
    "s3": (SQS, 'SQS("landing", decode="s3")'),
    "az": (StorageQueue, 'StorageQueue("landing")'),
}
"""The queues of notifications by the scheme, each with an example."""
READ_MODES: Final = ("metadata", "lines")
MIN_INTERVAL_SECONDS: Final = 0.1
MAX_INTERVAL_SECONDS: Final = 86_400.0


class ObjectStore(DecodingUpstream):
    """The objects of a folder of a bucket, and of the folders in it. Objects are found by listings, by notifications, or by both.

    With `read="metadata"`, each object is a raw event. With `read="lines"`, an object is a lane, and each line a raw event with the byte
    offset as its position. Progress is stored in the bucket, so that another host can continue.

    Args:
        location: The folder, such as `s3://landing/orders`, `gs://landing/orders` or `az://landing/orders`. Name the bucket alone to
            read all of it.
        pattern: A glob pattern for the last part of the key.
        read: `"metadata"` or `"lines"`.
        decode: How a line becomes JSON: `"json"`, `"text"`, `"base64"`, `"cloudevents"`, `"debezium"`, or by a function.
        connection: The id of a connection of kind `s3` or `aws` (default `s3`), of kind `gcs` for `gs://` (default `gcs`), or of kind
            `azure` for `az://` (default `azure`).
        interval: The seconds between two listings, or None to read notifications only.
        notifications: The queue that receives the notifications of an `s3://` bucket, such as `SQS("landing", decode="s3")`, or those of
            an `az://` container, such as `StorageQueue("landing")`.
        state: The folder for the progress, by default `.headrace` in the folder that is read.
    """

    def __init__(
        self,
        location: str,
        *,
        pattern: str = "*",
        read: ReadMode = "metadata",
        decode: Decoding | ValueFunction = "json",
        connection: str | None = None,
        interval: float | None = 30.0,
        notifications: SQS | StorageQueue | dict[str, Any] | None = None,
        state: str | None = None,
    ) -> None:
        self._location = parse_location(location)
        if "/" in check_text("pattern", pattern):
            raise UpstreamError(f"Invalid pattern {pattern!r}.", hint="Give a glob pattern for the last part of a key, such as '*.jsonl'.")
        if read not in READ_MODES:
            raise UpstreamError(f"Invalid read {read!r}.", hint=f"Use one of: {', '.join(READ_MODES)}.")
        if read == "metadata" and decode != "json":
            raise UpstreamError(f"Invalid decode {decode!r}: objects have no values to decode.", hint='Read their lines: read="lines".')
        self._pattern, self._read, self._decode = pattern, read, check_decoding(decode)
        self.decodings = (self._decode,)
        self._connection = CONNECTIONS[self._location.scheme] if connection is None else check_text("connection", connection)
        self._notifications = _notifications(self._location.scheme, notifications)
        self._interval = _interval(interval, self._notifications)
        self._state = None if state is None else parse_location(state)
        if self._state is not None and self._state.scheme != self._location.scheme:
            raise UpstreamError(
                f"The state {state!r} is not in the service of {self._location.url!r}.",
                hint=f"One connection serves both. Give a state of the scheme {self._location.scheme}://",
            )

    def stream_key(self) -> str:
        """Return `objects:` with the connection, the location, the pattern and what is read."""
        return f"objects:{self._connection}/{self._location.url}/{self._pattern}#{self._read}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "location": self._location.url,
            "pattern": self._pattern,
            "read": self._read,
            "decode": self._decode,
            "connection": self._connection,
            "interval": self._interval,
            "notifications": _arguments(self._notifications),
            "state": None if self._state is None else self._state.url,
        }

    def producer(self) -> ObjectProducer:
        """Return a new producer. It connects in `open_stream`."""
        description = Description(
            f"{self._location.url}/{self._pattern}#{self._read}",
            self._location,
            self._pattern,
            self._state_location(),
            self._read,
            self._decode,
            self._interval,
            self._notifications,
            self._connection,
        )
        producer = ObjectProducer(description)
        producer.upstream = self
        return producer

    @property
    def event_type(self) -> str:
        """The default type of an event from an object or a line."""
        return "headrace.objects.line" if self._read == "lines" else "headrace.objects.object"

    def _state_location(self) -> Location:
        """Return the folder of the state: one for each pattern and mode, so that upstreams of one folder do not share it."""
        base = self._state or self._location._replace(prefix=f"{self._location.prefix}{STATE_FOLDER}/")
        digest = blake2b(f"{self._location.url}/{self._pattern}#{self._read}".encode(), digest_size=8).hexdigest()
        return base._replace(prefix=f"{base.prefix}{digest}/")


def _notifications(scheme: str, notifications: Any) -> SQS | StorageQueue | None:
    """Return the queue of notifications that fits to a scheme. Raises `UpstreamError`."""
    if notifications is None:
        return None
    if scheme not in QUEUES:
        raise UpstreamError(f"Notifications of {scheme}:// are not supported.", hint="Leave them out, and give an interval for listings.")
    kind, example = QUEUES[scheme]
    queue: Any = kind(**notifications) if isinstance(notifications, dict) else notifications
    if not isinstance(queue, SQS | StorageQueue) or not isinstance(queue, kind):
        raise UpstreamError(f"Invalid notifications {queue!r} of {scheme}://.", hint=f"Give a queue: {example}.")
    if isinstance(queue, SQS) and queue.serialize()[1]["decode"][-1] != "s3":
        raise UpstreamError(
            "The queue of the notifications does not decode them.", hint='Write SQS(…, decode="s3") or decode=("sns", "s3").'
        )
    return queue


def _arguments(queue: SQS | StorageQueue | None) -> dict[str, Any] | None:
    if queue is None:
        return None
    return queue.arguments() if isinstance(queue, StorageQueue) else queue.serialize()[1]


def _interval(interval: object, notifications: object) -> float | None:
    if interval is None:
        if notifications is None:
            raise UpstreamError("Neither listings nor notifications are given.", hint="Give an interval, or notifications=, or both.")
        return None
    return check_seconds("interval", interval, MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS)
