"""What a shared stream has done, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.core.obligation import Counts


@dataclass(frozen=True, slots=True)
class LaneStatistics:
    """One open lane: the last position read and advanced, where it ends (None: unknown), and how many raw events are not advanced."""

    lane: str
    read: int | None
    advanced: int | None
    end: int | None
    outstanding: int


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """One shared stream. The counts are of raw events, since the hub was made, also across a stream that ended and began again.

    `filtered`: nobody made anything of it; `rejected`, `failed`: at least one subscriber did. `lanes`: at most 100, those furthest behind
    first. `oldest_unresolved`: the age in seconds of the oldest raw event that someone still owes an answer, and `held_by` who.
    """

    stream: str
    state: str
    read: int = 0
    advanced: int = 0
    outstanding: int = 0
    rejected: int = 0
    filtered: int = 0
    failed: int = 0
    lanes_open: int = 0
    lanes: tuple[LaneStatistics, ...] = ()
    oldest_unresolved: float | None = None
    held_by: str | None = None

    @classmethod
    def of(cls, stream: str, state: str, counts: Counts, **more: Any) -> StreamStatistics:
        """Return the statistics with these counts."""
        return cls(
            stream, state, counts.read, counts.advanced, rejected=counts.rejected, filtered=counts.filtered, failed=counts.failed, **more
        )
