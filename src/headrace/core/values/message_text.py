"""The stored text of a raw event: its JSON text, after a line with the metadata of its broker if there are any.

Backlogs and dead letters store it, so that a message that is read again has its key, headers and timestamp.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

VALUE_MARK: Final = "\x1e"
"""Begins the stored text of a value that is not a raw event: a record of a JSON text sequence (RFC 7464)."""
METADATA_MARK: Final = "\x1d"
"""Begins a stored text with metadata. No JSON text begins with a mark."""


class MessageMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of one message; see `headrace.triggers.raw_event.Message`."""

    key: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    delivery: int | None = None
    id: str | None = None
    malformed: str | None = None
    encoding: Literal["base64"] | None = None
    """How the stored text has the bytes of a malformed message, if they are not a text."""

    def fields(self) -> dict[str, Any]:
        """Return the metadata as readable JSON values. A value that the broker lacks is absent.

        `timestamp` is in seconds since 1970. Headers are text, with U+FFFD for bytes that are not UTF-8; the last value of a name counts.
        """
        values = {
            "id": self.id,
            "key": self.key,
            "headers": {name: value.decode(errors="replace") for name, value in self.headers if value is not None} or None,
            "timestamp": None if self.timestamp_ms is None else self.timestamp_ms / 1000,
            "delivery": self.delivery,
            "encoding": self.encoding,
        }
        return {name: value for name, value in values.items() if value is not None}


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(MessageMetadata).decode
_NOTHING: Final = MessageMetadata()


def encode_metadata(metadata: MessageMetadata) -> bytes:
    """Return the metadata as JSON."""
    return _encode(metadata)


def decode_metadata(data: bytes) -> MessageMetadata:
    """Return the metadata that `encode_metadata` has encoded."""
    return _decode(data)


def join_metadata(metadata: MessageMetadata | None, text: str) -> str:
    """Return the stored text of a raw event. A text that begins with a mark gets empty metadata, so that it is restored unchanged."""
    if metadata is None:
        if not text.startswith((METADATA_MARK, VALUE_MARK)):
            return text
        metadata = _NOTHING
    return f"{METADATA_MARK}{_encode(metadata).decode()}\n{text}"


def split_metadata(text: str) -> tuple[MessageMetadata | None, str]:
    """Return the metadata of a stored text, or None if it has none, and the text of the raw event."""
    if not text.startswith(METADATA_MARK):
        return None, text
    line, _, message = text[1:].partition("\n")
    try:
        return _decode(line), message
    except msgspec.DecodeError:  # not written by `join_metadata`
        return None, text
