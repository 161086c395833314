"""Where the first reading of a group begins: the earliest or latest message, a time, or offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from headrace.errors import UpstreamError
from headrace.sources import start

Start: TypeAlias = start.Start | Mapping[str, Mapping[int, int]]
"""Offsets are by topic and partition. A partition without one begins at the earliest message."""

EXAMPLE: Final = 'Use "earliest", "latest", a datetime with a time zone, or offsets such as {"orders": {0: 1200, 1: 950}}.'
MAX_OFFSET: Final = 2**63 - 1


def parse_start(value: Any) -> Start:
    """Return the start that a project declares, or that `serialize_start` has serialised. Raises `UpstreamError`."""
    if isinstance(value, Mapping):
        return _offsets(value)
    return start.parse_start(value, EXAMPLE)


def serialize_start(value: Start) -> Any:
    """Return the start as plain JSON."""
    if isinstance(value, Mapping):
        return {topic: {str(number): offset for number, offset in offsets.items()} for topic, offsets in value.items()}
    return start.serialize_start(value)


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
