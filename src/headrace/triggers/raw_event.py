"""The raw events of the built-in upstreams: JSON text, and messages with the metadata of their broker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self, TypeAlias

import msgspec

from headrace.core.matching.projection import Projection
from headrace.core.values.limits import FLAT_JSON_BYTES, MAX_JSON_DEPTH, is_too_deep
from headrace.core.values.message_text import MessageMetadata
from headrace.errors import MalformedEvent

RawHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Headers as a broker delivers them. A name may occur several times."""

_UNREAD: Final = object()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_decode = msgspec.json.Decoder().decode


class RawEvent:
    """One message of an upstream: JSON text as bytes, with its lane and position. Positions rise within a lane.

    The position is None if the upstream has none, as a queue whose messages have an id only.
    """

    __slots__ = ("_value", "data", "lane", "position")

    malformed: str | None = None
    """The reason why the data is in another format than declared, or None."""

    def __init__(self, data: bytes, lane: str, position: int | None) -> None:
        self.data = data
        self.lane = lane
        self.position = position
        self._value: Any = _UNREAD

    @property
    def value(self) -> Any:
        """The JSON value, parsed on the first read. Each trigger has its own copy. Raises `MalformedEvent`."""
        if self._value is _UNREAD:
            self._value = self._parse()
        return self._value

    def read(self, projection: Projection) -> Any:
        """Return the value with at least the fields of the projection, or the whole value if it is parsed. Raises `MalformedEvent`."""
        data = self.data
        if self._value is _UNREAD and type(data) is bytes and type(self) in _OWN_KINDS and self.malformed is None:
            fields = None if len(data) > FLAT_JSON_BYTES and is_too_deep(data) else projection.decode(data)
            if fields is not None:
                return fields
        return self.value

    def _parse(self) -> Any:
        if type(self.data) is not bytes:
            raise MalformedEvent(f"Not valid JSON: its data is {type(self.data).__name__}, not bytes.")
        if len(self.data) > FLAT_JSON_BYTES and is_too_deep(self.data):
            raise MalformedEvent(f"Not valid JSON here: it is nested deeper than {MAX_JSON_DEPTH} levels.")
        try:
            return _decode(self.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedEvent(f"Not valid JSON: {_reason(self.data, error)}.") from error

    def unread_copy(self) -> Self:
        """Return a copy whose value is parsed on its first read. A subclass with further fields copies them too."""
        kind = type(self)
        if kind is not RawEvent:
            other = copy(self)
            other.drop_value()
            return other
        return kind(self.data, self.lane, self.position)

    def drop_value(self) -> None:
        """Drop the parsed value; it is parsed again on the next read."""
        self._value = _UNREAD

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process: all but the parsed value."""
        slots = (name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ()))
        state = {name: getattr(self, name) for name in slots if name != "_value" and hasattr(self, name)}
        return state | getattr(self, "__dict__", {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._value = _UNREAD
        for name, value in state.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"RawEvent({self.data[:80]!r}, lane={self.lane!r}, position={self.position})"


class Message(RawEvent):
    """A raw event with the metadata of its broker.

    - `key`: the key that the sender gave, or None.
    - `id`: the id that the message has at each delivery, unique in its stream, or None. The default id of its event derives from it.
    - `delivery`: the number of deliveries so far, counted from 1, or None if the broker does not count.
    - `timestamp_ms`: the broker's time of the message in milliseconds since 1970, or None.
    - `malformed`: the reason why its `data` is in another format than declared, or None. It then has no value, and becomes a dead letter.

    A declared watch reads the metadata in the field `@`: `match={"@": {"key": ["UA"]}}`, `id="@.headers.ce_id"`.
    """

    __slots__ = ("_headers", "delivery", "id", "key", "malformed", "timestamp_ms")

    def __init__(
        self,
        data: bytes,
        lane: str,
        position: int | None,
        key: str | None = None,
        delivery: int | None = None,
        headers: RawHeaders = (),
        timestamp_ms: int | None = None,
        id: str | None = None,
        malformed: str | None = None,
    ) -> None:
        super().__init__(data, lane, position)
        self.id = id
        self.key = key
        self.delivery = delivery
        self.timestamp_ms = timestamp_ms
        self.malformed = malformed
        self._headers = headers

    @property
    def headers(self) -> dict[str, str]:
        """The headers as text, with U+FFFD for bytes that are not UTF-8. The last value of a name counts."""
        return {name: value.decode(errors="replace") for name, value in self._headers if value is not None}

    @property
    def timestamp(self) -> datetime | None:
        """The broker's time of the message in UTC, or None if it has none or one outside the years 1 to 9999."""
        try:
            return None if self.timestamp_ms is None else _EPOCH + timedelta(milliseconds=self.timestamp_ms)
        except OverflowError:
            return None

    @property
    def metadata(self) -> MessageMetadata:
        """The metadata as one value."""
        return MessageMetadata(self.key, tuple(self._headers), self.timestamp_ms, self.delivery, self.id, self.malformed)

    @property
    def has_metadata(self) -> bool:
        """Whether there is more than the number of deliveries."""
        values = (self.key, self.id, self.timestamp_ms, self.malformed)
        return bool(self._headers) or any(value is not None for value in values)

    def _parse(self) -> Any:
        if self.malformed is not None:
            raise MalformedEvent(self.malformed)
        return super()._parse()


_OWN_KINDS: Final = (RawEvent, Message)


def message_with(metadata: MessageMetadata, data: bytes, lane: str, position: int | None) -> Message:
    """Return the message of its JSON text and its metadata."""
    return Message(
        data, lane, position, metadata.key, metadata.delivery, metadata.headers, metadata.timestamp_ms, metadata.id, metadata.malformed
    )


def message_id(raw: object) -> str | None:
    """Return the id that a raw event has at each delivery, or None if it has none."""
    id = raw.id if isinstance(raw, Message) else None
    return id if type(id) is str and id else None


def _reason(data: bytes, error: Exception) -> str:
    """Return the reason why `data` is invalid. The parser reports half of a surrogate pair as truncated input."""
    if "truncated" in str(error) and (half := _LONE_SURROGATE.search(data)) is not None:
        return f"{half[0].decode()} is half of a surrogate pair"
    return str(error)
