"""For how long a runner's loop has not turned. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WatchdogPolicy:
    """After how many seconds of silence a runner is said to be blocked, and after how many it is ended."""

    blocked: float = 1.0
    stuck: float = 60.0


class StallDetector:
    """Counts looks, not the clock: a supervisor that was stopped itself takes the time it slept for no silence of the runner's."""

    def __init__(self) -> None:
        self._beats = 0
        self._seconds = 0.0

    def seen(self, beats: int, since_last: float, at_most: float) -> float:
        """Return the seconds of silence; `since_last` look so many have passed, of which `at_most` so many count."""
        if beats != self._beats:
            self._beats = beats
            self._seconds = 0.0
        elif beats:  # before its first beat it imports the project, which may take its time
            self._seconds += min(since_last, at_most)
        return self._seconds
