"""Where the first reading of a consumer begins: the earliest or latest message, a sequence, or a time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from headrace.errors import UpstreamError

Start: TypeAlias = Literal["earliest", "latest"] | int | datetime

EXAMPLE: Final = 'Use "earliest", "latest", the sequence of a message, or a datetime with a time zone.'
MAX_SEQUENCE: Final = 2**63 - 1


def parse_start(value: Any) -> Start:
    """Return the start that a project declares, or that `serialize_start` has serialised. Raises `UpstreamError`."""
    if isinstance(value, str) and value not in ("earliest", "latest"):
        value = _time(value)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UpstreamError(f"Invalid start {value.isoformat()}: it has no time zone.", hint="Add one: datetime(…, tzinfo=UTC).")
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEQUENCE:
        return value
    if value == "earliest":
        return "earliest"
    if value == "latest":
        return "latest"
    raise UpstreamError(f"Invalid start {value!r}.", hint=EXAMPLE)


def serialize_start(start: Start) -> str | int:
    """Return the start as plain JSON."""
    return start.isoformat() if isinstance(start, datetime) else start


def begin_at(start: Start, last_sequence: int) -> Mapping[str, Any]:
    """Return the fields of a consumer that begins there. `last_sequence` is that of the stream now."""
    if isinstance(start, datetime):
        return {"deliver_policy": "by_start_time", "opt_start_time": start.astimezone(UTC).isoformat().replace("+00:00", "Z")}
    if start == "earliest":
        return {"deliver_policy": "all"}
    return begin_after(last_sequence if start == "latest" else start - 1)


def begin_after(sequence: int) -> Mapping[str, Any]:
    """Return the fields of a consumer that begins with the message after this sequence."""
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": sequence + 1}


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UpstreamError(f"Invalid start {text!r}.", hint=EXAMPLE) from None
