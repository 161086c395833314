r"""Decoders of the client library pamqp that accept what senders may write, and the server delivers.

An error of a decoder ends the connection. The server then delivers the message again without end, and a quorum queue counts a delivery of
all messages that the reader held. So a value that the library cannot represent becomes one that it can:

- a time without a date in Python (beyond the year 9999) is None,
- bytes that are not UTF-8 in a short text, such as a routing key, a message id or the name of a header, are `\xNN`. Different texts stay
  different, so that two messages do not get the same id.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

INVALID_BYTES: Final = "backslashreplace"
_LENGTH: Final = struct.Struct(">I")

FieldDecoder = Callable[[bytes], tuple[int, Any]]
"""Returns how many bytes a value has, and the value."""


def install_decoders() -> None:
    """Replace the decoders of pamqp. A repetition changes nothing."""
    from pamqp import decode

    library: Any = decode
    if library.METHODS["shortstr"] is short_text:
        return
    time = tolerant_time(library.METHODS["timestamp"])
    table = tolerant_table(library.METHODS["table"], library.embedded_value)
    library.TABLE_MAPPING.update({b"T": time, b"F": table})
    library.METHODS.update({"timestamp": time, "table": table, "shortstr": short_text})


def tolerant_time(strict: FieldDecoder) -> FieldDecoder:
    """Return a decoder of times. Its value is None for a time without a date."""

    def decode_time(value: bytes) -> tuple[int, datetime | None]:
        try:
            return strict(value)
        except (ValueError, OverflowError, OSError):
            if len(value) < 8:
                raise
            return 8, None

    return decode_time


def tolerant_table(strict: FieldDecoder, value_of: FieldDecoder) -> FieldDecoder:
    """Return a decoder of tables. `value_of` decodes a value with its type."""

    def decode_table(value: bytes) -> tuple[int, dict[str, Any]]:
        try:
            return strict(value)
        except UnicodeDecodeError:
            return _table(value, value_of)

    return decode_table


def short_text(value: bytes) -> tuple[int, str]:
    """Decode a text of up to 255 bytes."""
    if not value:
        raise ValueError("Could not unpack short string value")
    end = value[0] + 1
    return end, value[1:end].decode(errors=INVALID_BYTES)


def _table(value: bytes, value_of: FieldDecoder) -> tuple[int, dict[str, Any]]:
    """Decode a table whose names may not be UTF-8."""
    end = _LENGTH.size + _LENGTH.unpack_from(value)[0]
    offset, table = _LENGTH.size, dict[str, Any]()
    while offset < end:
        size, name = short_text(value[offset:end])
        offset += size
        size, table[name] = value_of(value[offset:])
        offset += size
    return end, table
