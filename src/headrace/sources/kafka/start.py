"""Where the first reading of a group begins: the earliest or latest message, a time, or offsets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from headrace.errors import UpstreamError

Start: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[str, Mapping[int, int]]
"""Offsets are by topic and partition. A partition without one begins at the earliest message."""

EXAMPLE: Final = 'Use "earliest", "latest", a datetime with a time zone, or offsets such as {"orders": {0: 1200, 1: 950}}.'
MAX_OFFSET: Final = 2**63 - 1


def parse_start(value: Any) -> Start:
    """Return the start that a project declares, or that `serialize_start` has serialised. Raises `UpstreamError`."""
    if isinstance(value, Mapping):
        return _offsets(value)
    if isinstance(value, str) and value not in ("earliest", "latest"):
        value = _time(value)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UpstreamError(f"Invalid start {value.isoformat()}: it has no time zone.", hint="Add one: datetime(…, tzinfo=UTC).")
        return value
    if value == "earliest":
        return "earliest"
    if value == "latest":
        return "latest"
    raise UpstreamError(f"Invalid start {value!r}.", hint=EXAMPLE)


def serialize_start(start: Start) -> Any:
    """Return the start as plain JSON."""
    if isinstance(start, datetime):
        return start.isoformat()
    if isinstance(start, str):
        return start
    return {topic: {str(number): offset for number, offset in offsets.items()} for topic, offsets in start.items()}


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UpstreamError(f"Invalid start {text!r}.", hint=EXAMPLE) from None


def _offsets(value: Mapping[Any, Any]) -> Mapping[str, Mapping[int, int]]:
    try:
        offsets = {str(topic): {int(number): int(offset) for number, offset in part.items()} for topic, part in value.items()}
    except (AttributeError, TypeError, ValueError):
        raise UpstreamError(f"Invalid start {value!r}.", hint=EXAMPLE) from None
    for topic, part in offsets.items():
        for number, offset in part.items():
            if number < 0 or not 0 <= offset <= MAX_OFFSET:
                raise UpstreamError(f"Invalid start of {topic}/{number}: {offset} is not an offset.", hint=EXAMPLE)
    return offsets
