"""Who has been silent for too long, measured by a clock that cannot be set.

The law: a job is silent for as long as this api has seen the same heartbeat on its row, by this machine's steady clock. So a clock
that is set back or forth, here or on the host of another api, ends no job and keeps none alive. And where nobody at all was heard for
so long, because this api or its database was away, those who are still there get a moment to say so first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

MOMENT = 6  # the part of the time that a job may be silent which is given to those who could not be heard


def steady_clock() -> int:
    """Return microseconds since some moment, which cannot be set."""
    return time.monotonic_ns() // 1000


class LivenessTracker:
    """The last heartbeat that was seen of each running job, and when it was first seen."""

    def __init__(self, threshold: int, ticks: Callable[[], int]) -> None:
        self._threshold = threshold
        self._ticks = ticks
        self._seen: dict[int, tuple[int, int]] = {}
        self._asked: int | None = None
        self._grace = 0

    def over(self, heartbeats: Iterable[tuple[int, int]]) -> list[int]:
        """Return the jobs that count as dead, of the running jobs with their last heartbeats."""
        now = self._ticks()
        if self._asked is not None and now - self._asked > self._threshold:
            self._grace = now + self._threshold // MOMENT
        self._asked = now
        before, self._seen = self._seen, {}
        for job_id, heartbeat in heartbeats:
            known = before.get(job_id)
            self._seen[job_id] = known if known is not None and known[0] == heartbeat else (heartbeat, now)
        if now < self._grace:
            return []
        return [job_id for job_id, (_, when) in self._seen.items() if now - when > self._threshold]
