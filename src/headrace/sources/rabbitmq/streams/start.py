"""Where the first reading of a stream begins: the earliest or latest message, an offset, or a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from headrace.errors import UpstreamError

Start: TypeAlias = Literal["earliest", "latest"] | int | datetime

EXAMPLE: Final = 'Use "earliest", "latest", the offset of a message, or a datetime with a time zone.'
MAX_OFFSET: Final = 2**63 - 1
NO_OFFSET: Final = -1
"""The offset before the first message of a stream."""


def parse_start(value: Any) -> Start:
    """Return the start that a project declares, or that `serialize_start` has serialised. Raises `UpstreamError`."""
    if value in ("earliest", "latest"):
        return "earliest" if value == "earliest" else "latest"
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_OFFSET:
        return value
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if not isinstance(time, datetime):
        raise UpstreamError(f"Invalid start {value!r}.", hint=EXAMPLE)
    if time.tzinfo is None:
        raise UpstreamError(f"Invalid start {time.isoformat()}: it has no time zone.", hint="Add one: datetime(…, tzinfo=UTC).")
    return time


def serialize_start(start: Start) -> str | int:
    """Return the start as plain JSON."""
    return start.isoformat() if isinstance(start, datetime) else start


def offset_argument(offset: int | None, start: Start) -> str | int | datetime:
    """Return the argument `x-stream-offset` of a consumer that reads after `offset`, or from the start on if that is None."""
    if offset is not None:
        return "first" if offset == NO_OFFSET else offset + 1
    return "first" if start == "earliest" else "next" if start == "latest" else start
