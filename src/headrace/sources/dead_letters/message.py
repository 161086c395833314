"""The value and the headers of the copy of a dead origin."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headrace.ports.dead_letter_sender import DeadLetterCopy
from headrace.wire.base import rfc3339

PREFIX: Final = "headrace-"
"""Begins the names of the headers that a copy has beside those of its message."""
BASE64: Final = f"{PREFIX}base64"
"""The header with the names of those headers whose values are in base64, as a JSON array."""
MAX_TRIGGERS_BYTES: Final = 16 * 1024
"""Bytes of the names of triggers in a copy, as a JSON array: NATS takes 64 KiB of headers, RabbitMQ 128 KiB."""
EXACT: Final = frozenset({"json"})
"""Decodings that leave a value as it is."""

_decode: Final = msgspec.json.Decoder().decode


class CopiedValue(NamedTuple):
    """The bytes of a copy. `is_original` is false if they are the JSON that triggers got, and not what the sender of the message sent."""

    data: bytes
    is_original: bool


def copied_value(copy: DeadLetterCopy, decode: str) -> CopiedValue:
    """Return the value of a message whose values were decoded by `decode`. It is never empty: an empty value would delete a key."""
    is_malformed = copy.metadata is not None and copy.metadata.malformed is not None
    if decode in EXACT or is_malformed:
        return CopiedValue(copy.data, True)
    if decode in ("text", "base64"):
        try:
            fields = _decode(copy.data)
        except msgspec.DecodeError:
            fields = None
        content = fields.get(decode) if isinstance(fields, dict) else None
        if isinstance(content, str):
            return CopiedValue(content.encode() if decode == "text" else b64decode(content), True)
    return CopiedValue(copy.data, False)


def origin_fields(copy: DeadLetterCopy, decode: str | None, *, has_key: bool = True) -> dict[str, Any]:
    """Return what a copy says of its dead letter, by the names in headers without their prefix. A field without a value is left out.

    `decode` is set if the value is not the original one. `has_key` says that the copy has the key of its message without a field.
    """
    origin, metadata = copy.dead_letter, copy.metadata
    fields: dict[str, Any] = {
        "id": origin.id,
        "number": origin.number,
        "kind": origin.kind,
        "reason": origin.reason,
        "attempts": origin.attempts,
        "time": rfc3339(origin.received),
        "stream": origin.stream,
        "lane": origin.lane,
        "position": origin.position,
        "triggers": first_names(origin.triggers, MAX_TRIGGERS_BYTES),
        "timestamp": None if metadata is None else metadata.timestamp_ms,
        "message-id": None if metadata is None else metadata.id,
        "key": None if metadata is None or has_key else metadata.key,
        "decode": decode,
    }
    return {name: value for name, value in fields.items() if value is not None}


def first_names(names: Sequence[str], max_bytes: int) -> Sequence[str]:
    """Return the names, or the first of them whose JSON array has at most `max_bytes`."""
    size = len(b"[]")
    for number, name in enumerate(names):
        size += len(msgspec.json.encode(name)) + (number > 0)
        if size > max_bytes:
            return names[:number]
    return names


def message_headers(copy: DeadLetterCopy) -> list[tuple[str, bytes]]:
    """Return the headers of the message, without those of an earlier copy. A header without a value is left out."""
    headers = () if copy.metadata is None else copy.metadata.headers
    return [(name, value) for name, value in headers if value is not None and not name.startswith(PREFIX)]


def origin_headers(copy: DeadLetterCopy, decode: str | None, *, has_key: bool = True) -> list[tuple[str, bytes]]:
    """Return the headers of the dead letter: see `origin_fields`. The triggers are a JSON array."""
    own = origin_fields(copy, decode, has_key=has_key)
    own["triggers"] = msgspec.json.encode(own["triggers"]).decode()
    return [(PREFIX + name, str(value).encode()) for name, value in own.items()]


def copied_headers(copy: DeadLetterCopy, decode: str | None, *, has_key: bool = True) -> list[tuple[str, bytes]]:
    """Return the headers of the message, then those of its dead letter."""
    return message_headers(copy) + origin_headers(copy, decode, has_key=has_key)


def text_headers(headers: Sequence[tuple[str, bytes]], is_valid: Callable[[str], bool] | None = None) -> dict[str, str]:
    """Return headers for a broker whose headers are texts. The last value of a name counts.

    A value that is not a valid text is in base64, and `headrace-base64` names it.
    """
    texts: dict[str, str] = {}
    encoded: list[str] = []
    for name, value in dict(headers).items():
        text = text_of(value)
        if text is None or (is_valid is not None and not is_valid(text)):
            text = b64encode(value).decode()
            encoded.append(name)
        texts[name] = text
    return texts | ({BASE64: msgspec.json.encode(encoded).decode()} if encoded else {})


def text_of(value: bytes) -> str | None:
    """Return the text that the bytes are in UTF-8, or None."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
