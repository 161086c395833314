"""Conversion of raw events to the text that a backlog stores, and back.

The text of a `RawEvent` is its JSON, and that of a `Message` has its metadata before it. Any other value of a producer is its JSON after a
mark, so that it is restored as the same value.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import msgspec

from headrace.core.values.limits import is_too_deep
from headrace.core.values.message_text import VALUE_MARK, join_metadata, split_metadata
from headrace.core.values.text import describe_error, describe_value
from headrace.errors import MalformedEvent
from headrace.triggers.packed import PackedEvent
from headrace.triggers.raw_event import Message, RawEvent, message_with

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def to_text(raw: Any) -> str:
    """Return the text of `raw`, with U+FFFD for invalid UTF-8 and NUL. Raises `MalformedEvent` if it is not made of JSON values."""
    try:
        if isinstance(raw, RawEvent):
            return raw_event_text(raw)
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
    return raw_event_from(text, lane, position)


def raw_event_text(raw: RawEvent, max_bytes: int | None = None) -> str:
    """Return the text of a raw event, of which it takes the first `max_bytes` bytes.

    U+FFFD replaces invalid UTF-8 and NUL. The bytes of a message with metadata become base64 instead: they are restored unchanged.
    """
    data = raw.data[:max_bytes]
    metadata = raw.metadata if isinstance(raw, Message) and raw.has_metadata else None
    if metadata is not None and not _is_storable(data):
        return join_metadata(msgspec.structs.replace(metadata, encoding="base64"), b64encode(data).decode())
    return join_metadata(metadata, decode_lossy(data))


def dead_letter_text(raw: RawEvent, max_bytes: int) -> str:
    """Return the text of a raw event for a dead letter, without metadata that no text can hold. Does not raise."""
    try:
        return raw_event_text(raw, max_bytes)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return decode_lossy(raw.data[:max_bytes])


def raw_event_from(text: str, lane: str, position: int | None) -> RawEvent:
    """Return the raw event of the text of one."""
    metadata, data = split_metadata(text)
    if metadata is None:
        return RawEvent(data.encode(), lane, position or 0)
    content = b64decode(data) if metadata.encoding == "base64" else data.encode()
    return message_with(metadata, content, lane, position or 0)


def preview(raw: Any) -> str:
    """Return the text of `raw`, or its `repr` if it cannot be text."""
    try:
        return to_text(raw)
    except MalformedEvent:
        return describe_value(raw)


def _is_storable(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def decode_lossy(data: bytes) -> str:
    """Return bytes as text that every database can store."""
    return data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
