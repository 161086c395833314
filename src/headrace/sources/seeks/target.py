"""The target of a seek, as an operator writes it: `earliest`, `latest`, a time, a position, or one of them for each lane. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from headrace.core.values.moments import in_range
from headrace.core.values.text import cut_text
from headrace.errors import UsageError
from headrace.sources.redis.entry_ids import position_of

LanePoint: TypeAlias = Literal["earliest", "latest"] | datetime | int
"""Where one lane is read next: its first message, after its last one, the first message at or after a time, or a position.

The id of an entry of Redis is a position too.
"""

MAX_POSITION: Final = 2**63 - 1
MAX_QUOTED_CHARS: Final = 200
_ENTRY_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
HINT: Final = "Use earliest, latest, a time such as 2026-11-24T10:00:00Z, a position, or LANE=TARGET,LANE=TARGET."


class SeekTarget(NamedTuple):
    """The point of all lanes, or the points of the named lanes. Lanes without a point stay."""

    everywhere: LanePoint | None
    lanes: Mapping[str, LanePoint]


def parse_target(text: str) -> SeekTarget:
    """Return the target that a text names.

    Raises:
        UsageError: It names no target, or a lane twice.
    """
    if "=" not in text:
        return SeekTarget(_point(text, text), {})
    lanes: dict[str, LanePoint] = {}
    for part in text.split(","):
        lane, separator, point = part.strip().rpartition("=")
        if not separator or not lane:
            raise UsageError(f"Invalid --to {_quoted(text)}: {_quoted(part.strip())} is not LANE=TARGET.", hint=HINT)
        if lane in lanes:
            raise UsageError(f"Invalid --to {_quoted(text)}: it names the lane {_quoted(lane)} twice.", hint=HINT)
        lanes[lane] = _point(point, text)
    return SeekTarget(None, lanes)


def _point(text: str, whole: str) -> LanePoint:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isascii() and text.isdecimal():
        if len(text) > len(str(MAX_POSITION)) or int(text) > MAX_POSITION:
            raise UsageError(f"Invalid --to {_quoted(whole)}: {_quoted(text)} is larger than any position.", hint=HINT)
        return int(text)
    if _ENTRY_ID.fullmatch(text):
        return position_of(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"Invalid --to {_quoted(whole)}: {_quoted(text)} is not a target.", hint=HINT) from None
    if time.tzinfo is None:
        raise UsageError(
            f"Invalid --to {_quoted(whole)}: the time has no time zone.", hint=f"For UTC, write {text}Z with hours and minutes."
        )
    if not in_range(time) or time.timestamp() < 0:
        raise UsageError(f"Invalid --to {_quoted(whole)}: the time is before 1970 or after 9999.", hint=HINT)
    return time


def _quoted(text: str) -> str:
    return repr(cut_text(text, MAX_QUOTED_CHARS))
