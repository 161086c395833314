"""Where the first reading of an upstream begins, in the words that all logs share: the earliest or latest message, or a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

from headrace.errors import UpstreamError

Start: TypeAlias = Literal["earliest", "latest"] | datetime


def parse_start(value: Any, example: str) -> Start:
    """Return the start that a project declares, or that `serialize_start` has serialised. Raises `UpstreamError` with the example."""
    if value in ("earliest", "latest"):
        return "earliest" if value == "earliest" else "latest"
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if not isinstance(time, datetime):
        raise UpstreamError(f"Invalid start {value!r}.", hint=example)
    if time.tzinfo is None:
        raise UpstreamError(f"Invalid start {time.isoformat()}: it has no time zone.", hint="Add one: datetime(…, tzinfo=UTC).")
    return time


def serialize_start(start: Start) -> str:
    """Return the start as plain JSON."""
    return start.isoformat() if isinstance(start, datetime) else start
