"""Restarts of failed triggers: exponentially longer waits, and a limit of failures in a row."""

from __future__ import annotations

from dataclasses import dataclass

MIN_WAIT_SECONDS = 1.0  # seconds
MAX_WAIT_SECONDS = 60.0  # seconds
LONG_LIFE = 60.0  # seconds; a longer life resets the count
MAX_RESTARTS = 10


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """The number of failures in a row, and the seconds until the restart, or None if the trigger is parked."""

    restarts: int
    retry_in: float | None


def next_restart(restarts: int, uptime: float, limit: int, jitter: float, *, upstream: bool = False) -> RestartDecision:
    """Return the decision for a trigger that failed after `uptime` seconds, with `restarts` failures in a row before.

    `jitter` in [0, 1) spreads triggers that fail together. If the `upstream` failed and not the trigger, the trigger waits likewise, but
    uses at most half of its `limit`.
    """
    before = 0 if uptime >= LONG_LIFE else restarts
    if upstream:
        count = max(before, min(before + 1, limit // 2))
        return RestartDecision(count, _wait(before + 1, jitter))
    if before + 1 > limit:
        return RestartDecision(before + 1, None)
    return RestartDecision(before + 1, _wait(before + 1, jitter))


def _wait(nth: int, jitter: float) -> float:
    """Return the `nth` wait: twice the one before, up to `MAX_WAIT_SECONDS`, and up to a quarter shorter."""
    return min(MAX_WAIT_SECONDS, MIN_WAIT_SECONDS * 2.0 ** min(nth - 1, 30)) * (1 - jitter / 4)
