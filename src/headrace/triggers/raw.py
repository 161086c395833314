"""The raw event that Headrace's own upstreams yield."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace.core.limits import MAX_JSON_DEPTH, is_too_deep
from headrace.errors import MalformedEvent

_UNREAD: Final = object()
_decode = msgspec.json.Decoder().decode


class RawEvent:
    """What the upstream gave: JSON text as bytes, and its place. Positions rise within a lane."""

    __slots__ = ("_value", "data", "lane", "position")

    def __init__(self, data: bytes, lane: str, position: int) -> None:
        self.data = data
        self.lane = lane
        self.position = position
        self._value: Any = _UNREAD

    @property
    def value(self) -> Any:
        """The JSON value, parsed once however many read it. Raises `MalformedEvent`."""
        if self._value is _UNREAD:
            if type(self.data) is not bytes:
                raise MalformedEvent(f"Not valid JSON: its data is {type(self.data).__name__}, not bytes.")
            if is_too_deep(self.data):
                raise MalformedEvent(f"Not valid JSON here: it is nested deeper than {MAX_JSON_DEPTH} levels.")
            try:
                self._value = _decode(self.data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise MalformedEvent(f"Not valid JSON: {error}.") from error
        return self._value

    def __repr__(self) -> str:
        return f"RawEvent({self.data[:80]!r}, lane={self.lane!r}, position={self.position})"
