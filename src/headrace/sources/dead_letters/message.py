"""The value and the headers of the copy of a dead origin."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Final, NamedTuple

import msgspec

from headrace.ports.dead_letter_sender import DeadLetterCopy
from headrace.wire.base import rfc3339

PREFIX: Final = "headrace-"
"""Begins the names of the headers that a copy has beside those of its message."""
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


def copied_headers(copy: DeadLetterCopy, decode: str | None) -> list[tuple[str, bytes]]:
    """Return the headers of the message, then those of the dead origin. A header without a value is left out.

    `decode` is set if the value is not the original one.
    """
    origin = copy.dead_letter
    own: dict[str, Any] = {
        "id": origin.id,
        "number": origin.number,
        "kind": origin.kind,
        "reason": origin.reason,
        "attempts": origin.attempts,
        "time": rfc3339(origin.received),
        "stream": origin.stream,
        "lane": origin.lane,
        "position": origin.position,
        "triggers": msgspec.json.encode(origin.triggers).decode(),
        "timestamp": None if copy.metadata is None else copy.metadata.timestamp_ms,
        "decode": decode,
    }
    before = () if copy.metadata is None else copy.metadata.headers
    headers = [(name, value) for name, value in before if value is not None and not name.startswith(PREFIX)]
    return headers + [(PREFIX + name, str(value).encode()) for name, value in own.items() if value is not None]
