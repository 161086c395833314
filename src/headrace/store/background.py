"""Failing background work of one API server: retries and alerts."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from headrace.errors import ResourceError
from headrace.wire.status.alerts import Alert

MIN_PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 60.0
MAX_ERROR_CHARS: Final = 300
MIN_LAG_DAYS: Final = 1.5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Failure:
    since: datetime
    failures: int
    reason: str


class BackgroundWork:
    """The failing works, by name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[str, _Failure] = {}
        self._lag_days = 0.0

    def record_failure(self, work: str, error: Exception) -> float:
        """Record and log a failure; return the seconds to wait before a retry of `work`. They grow with each
        consecutive failure.
        """
        with self._lock:
            before = self._failures.get(work)
            since = datetime.now(UTC) if before is None else before.since
            failures = 1 if before is None else before.failures + 1
            self._failures[work] = _Failure(since, failures, f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS])
        pause: float = min(MAX_PAUSE_SECONDS, MIN_PAUSE_SECONDS * 2 ** min(failures - 1, 10))
        if isinstance(error, ResourceError):  # the database is unavailable: a traceback would add nothing
            log.warning("background work failed", work=work, error=str(error), retry_seconds=MIN_PAUSE_SECONDS)
            return MIN_PAUSE_SECONDS
        log.error("background work failed", work=work, failures=failures, retry_seconds=pause, exc_info=error)
        return pause

    def record_success(self, work: str) -> None:
        """Record that a work succeeded or is no longer needed."""
        with self._lock:
            self._failures.pop(work, None)

    def record_lag(self, micros: int) -> None:
        """Record how much less time retention counts than the wall clock."""
        days = micros / 86_400_000_000
        with self._lock:
            self._lag_days = days if days > MIN_LAG_DAYS else 0.0

    def alerts(self) -> list[Alert]:
        """Return the current failures, by name."""
        with self._lock:
            problems = sorted(self._failures.items())
            lag = self._lag_days
        words = f"Retention counts {lag:,.1f} days less than the clock, so it keeps more: the clock was set forward, or no api was running."
        lagging = [Alert(severity="warning", about="retention", summary=words, section="processes")] if lag else []
        return lagging + [
            Alert(severity="error", about=f"work:{work}", summary=_summary(work, problem), section="processes", since=problem.since)
            for work, problem in problems
        ]


def _summary(work: str, failure: _Failure) -> str:
    often = "once" if failure.failures == 1 else f"{failure.failures:,} times in a row"
    return f"The api's work on {work} failed {often} and is tried again: {failure.reason}"
