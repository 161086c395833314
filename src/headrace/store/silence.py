"""Who has been silent for too long, told by a clock that nobody sets.

The law: a job is silent for as long as this api has seen the same heartbeat on its row, by this machine's steady clock. So a clock
that is set back or forth, here or on the host of another api, ends no job and keeps none alive; and none dies of a silence in which
this api, or its database, was away: nobody could be heard then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable


def steady_clock() -> int:
    """Return microseconds since some moment; nobody can set it."""
    return time.monotonic_ns() // 1000


class Silence:
    """The last heartbeat that was seen of each running job, and when it was first seen."""

    def __init__(self, threshold: int, ticks: Callable[[], int]) -> None:
        self._threshold = threshold
        self._ticks = ticks
        self._seen: dict[int, tuple[int, int]] = {}

    def over(self, heartbeats: Iterable[tuple[int, int]]) -> list[int]:
        """Return the jobs that are to be taken for dead, of all that run, given with their last heartbeats."""
        now = self._ticks()
        before, self._seen = self._seen, {}
        for job_id, heartbeat in heartbeats:
            known = before.get(job_id)
            self._seen[job_id] = known if known is not None and known[0] == heartbeat else (heartbeat, now)
        return [job_id for job_id, (_, when) in self._seen.items() if now - when > self._threshold]
