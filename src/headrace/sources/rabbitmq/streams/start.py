"""Where the first reading of a stream begins: the earliest or latest message, an offset, or a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, TypeAlias

from headrace.sources import start

Start: TypeAlias = start.Start | int

EXAMPLE: Final = 'Use "earliest", "latest", the offset of a message, or a datetime with a time zone.'
MAX_OFFSET: Final = 2**63 - 1
NO_OFFSET: Final = -1
"""The offset before the first message of a stream."""


def parse_start(value: Any) -> Start:
    """Return the start that a project declares, or that `serialize_start` has serialised. Raises `UpstreamError`."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_OFFSET:
        return value
    return start.parse_start(value, EXAMPLE)


def serialize_start(value: Start) -> str | int:
    """Return the start as plain JSON."""
    return value if isinstance(value, int) else start.serialize_start(value)


def offset_argument(offset: int | None, begin: Start) -> str | int | datetime:
    """Return the argument `x-stream-offset` of a consumer that reads after `offset`, or from `begin` on if that is None."""
    if offset is not None:
        return "first" if offset == NO_OFFSET else offset + 1
    return "first" if begin == "earliest" else "next" if begin == "latest" else begin
