"""Measure how long a runner's loop has not turned. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WatchdogPolicy:
    """After how many seconds without a beat a runner counts as blocked, and after how many it is killed."""

    blocked: float = 1.0
    stuck: float = 60.0


class StallDetector:
    """Adds up the time between checks. If the supervisor itself was stopped, that time does not count against the runner."""

    def __init__(self) -> None:
        self._beats = 0
        self._seconds = 0.0

    def check(self, beats: int, since_last: float, max_seconds: float) -> float:
        """Return the seconds without a beat. `since_last` seconds have passed since the last check; at most `max_seconds` of them count."""
        if beats != self._beats:
            self._beats = beats
            self._seconds = 0.0
        elif beats:  # before its first beat the process imports the project, which may take long
            self._seconds += min(since_last, max_seconds)
        return self._seconds
