"""Detect jobs that have been silent for too long, by a clock that cannot be set.

Invariant: a job has been silent for as long as this API server has seen the same heartbeat on its row, by
this machine's steady clock. A clock that is set forward or back, here or on the host of another API server,
ends no job and keeps none alive. If no heartbeat could arrive for that time, because this API server or its
database was unavailable, running jobs first get a grace period for a heartbeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

GRACE_DIVISOR = 6  # divisor of the liveness threshold: the grace period for jobs whose heartbeats could not be received


def steady_clock() -> int:
    """Return microseconds since an arbitrary start. Nothing can set this clock."""
    return time.monotonic_ns() // 1000


class LivenessTracker:
    """The last heartbeat of each running job, and the time when it was first seen."""

    def __init__(self, threshold: int, ticks: Callable[[], int]) -> None:
        self._threshold = threshold
        self._ticks = ticks
        self._seen: dict[int, tuple[int, int]] = {}
        self._last_check: int | None = None
        self._grace = 0

    def expired(self, heartbeats: Iterable[tuple[int, int]]) -> list[int]:
        """Return the jobs that count as lost, given the running jobs with their last heartbeats."""
        now = self._ticks()
        if self._last_check is not None and now - self._last_check > self._threshold:
            self._grace = now + self._threshold // GRACE_DIVISOR
        self._last_check = now
        before, self._seen = self._seen, {}
        for job_id, heartbeat in heartbeats:
            known = before.get(job_id)
            self._seen[job_id] = known if known is not None and known[0] == heartbeat else (heartbeat, now)
        if now < self._grace:
            return []
        return [job_id for job_id, (_, when) in self._seen.items() if now - when > self._threshold]
