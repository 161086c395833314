"""Where the first reading of a consumer begins: the earliest or latest message, a sequence, or a time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from headrace.sources import start

Start: TypeAlias = start.Start | int

EXAMPLE: Final = 'Use "earliest", "latest", the sequence of a message, or a datetime with a time zone.'
MAX_SEQUENCE: Final = 2**63 - 1


def parse_start(value: Any) -> Start:
    """Return the start that a project declares, or that `serialize_start` has serialised. Raises `UpstreamError`."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEQUENCE:
        return value
    return start.parse_start(value, EXAMPLE)


def serialize_start(value: Start) -> str | int:
    """Return the start as plain JSON."""
    return value if isinstance(value, int) else start.serialize_start(value)


def begin_at(begin: Start, last_sequence: int) -> Mapping[str, Any]:
    """Return the fields of a consumer that begins there. `last_sequence` is that of the stream now."""
    if isinstance(begin, datetime):
        return {"deliver_policy": "by_start_time", "opt_start_time": begin.astimezone(UTC).isoformat().replace("+00:00", "Z")}
    if begin == "earliest":
        return {"deliver_policy": "all"}
    return begin_after(last_sequence if begin == "latest" else begin - 1)


def begin_after(sequence: int) -> Mapping[str, Any]:
    """Return the fields of a consumer that begins with the message after this sequence."""
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": sequence + 1}
