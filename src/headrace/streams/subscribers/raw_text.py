"""Conversion of raw events to the text that a backlog stores, and back.

The text of a `RawEvent` is its JSON. Any other value of a producer is its JSON after a mark, so that it is restored as the same value.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace.core.values.limits import is_too_deep
from headrace.core.values.text import describe_error, describe_value
from headrace.errors import MalformedEvent
from headrace.triggers.packed import PackedEvent
from headrace.triggers.raw_event import RawEvent

VALUE_MARK: Final = "\x1e"
"""Begins a record of a JSON text sequence (RFC 7464); no JSON text begins with it."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def to_text(raw: Any) -> str:
    """Return the text of `raw`, with U+FFFD for invalid UTF-8 and NUL. Raises `MalformedEvent` if it is not made of JSON values."""
    try:
        if isinstance(raw, RawEvent):
            return decode_lossy(raw.data)
        if isinstance(raw, PackedEvent):
            return raw.backlog_text()
        text = _encode(raw)
        same = not is_too_deep(text) and bool(_decode(text) == raw)
    except MalformedEvent:
        raise
    except BaseException as error:  # a class of the user's may raise anything when it is encoded or compared, also SystemExit
        raise MalformedEvent(f"{type(raw).__name__} cannot be kept in a backlog: {describe_error(error)}") from error
    if not same:
        raise MalformedEvent(f"{type(raw).__name__} cannot be kept in a backlog: it is not made of JSON values.")
    return VALUE_MARK + text.decode()


def from_text(text: str, lane: str, position: int | None) -> Any:
    """Return the raw event of a text."""
    if text.startswith(VALUE_MARK):
        return _decode(text[1:])
    return RawEvent(text.encode(), lane, position or 0)


def preview(raw: Any) -> str:
    """Return the text of `raw`, or its `repr` if it cannot be text."""
    try:
        return to_text(raw)
    except MalformedEvent:
        return describe_value(raw)


def decode_lossy(data: bytes) -> str:
    """Return bytes as text that every database can store."""
    return data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
