"""Where the first reading of a stream begins: the earliest or latest record, or a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from headrace.errors import UpstreamError

Start: TypeAlias = Literal["earliest", "latest"] | datetime

EXAMPLE: Final = 'Use "earliest", "latest", or a datetime with a time zone.'


def parse_start(value: Any) -> Start:
    """Return the start that a project declares, or that `serialize_start` has serialised. Raises `UpstreamError`."""
    if value == "earliest":
        return "earliest"
    if value == "latest":
        return "latest"
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise UpstreamError(f"Invalid start {value!r}.", hint=EXAMPLE) from None
    if not isinstance(value, datetime):
        raise UpstreamError(f"Invalid start {value!r}.", hint=EXAMPLE)
    if value.tzinfo is None:
        raise UpstreamError(f"Invalid start {value.isoformat()}: it has no time zone.", hint="Add one: datetime(…, tzinfo=UTC).")
    return value


def serialize_start(start: Start) -> str:
    """Return the start as plain JSON."""
    return start.isoformat() if isinstance(start, datetime) else start


def start_ms(start: Start, now_ms: int) -> int | None:
    """Return the arrival time from which shards are read, in milliseconds since 1970, or None for their first record."""
    if start == "earliest":
        return None
    return now_ms if start == "latest" else int(start.timestamp() * 1_000)
