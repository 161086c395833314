"""Where the first reading of a group begins: the earliest or latest message, a time, or offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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


def check_start_topics(start: Start, topics: Sequence[str]) -> None:
    """Check that the topics of a start are read, by their names or by patterns. Raises `UpstreamError`."""
    for topic in start if isinstance(start, Mapping) else ():
        if not any(topic == name or (name.startswith("^") and re.match(name, topic)) for name in topics):
            raise UpstreamError(f"Invalid start: topic {topic!r} is not read.", hint=f"The topics are {', '.join(topics)}.")


def _offsets(value: Mapping[Any, Any]) -> Mapping[str, Mapping[int, int]]:
    if not all(isinstance(topic, str) and isinstance(part, Mapping) for topic, part in value.items()):
        raise UpstreamError(f"Invalid start {value!r}.", hint=EXAMPLE)
    return {topic: {_number(topic, key): _offset(topic, key, offset) for key, offset in part.items()} for topic, part in value.items()}


def _number(topic: str, value: Any) -> int:
    """Return the number of a partition. It is a text in plain JSON."""
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise UpstreamError(f"Invalid start of {topic}/{value}: it is not the number of a partition.", hint=EXAMPLE)
    return number


def _offset(topic: str, number: Any, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_OFFSET:
        raise UpstreamError(f"Invalid start of {topic}/{number}: {value!r} is not an offset.", hint=EXAMPLE)
    return value
