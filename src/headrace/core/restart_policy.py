"""When a trigger that failed starts again, and when it does not: longer waits each time, and after too many in a row none."""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 1.0  # seconds
MOST = 60.0  # seconds
LONG_LIFE = 60.0  # seconds; a longer life resets the count
MAX_RESTARTS = 10


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """How often it has failed in a row now, and in how many seconds it starts again. None: it is parked."""

    restarts: int
    retry_in: float | None


def next_restart(restarts: int, lived: float, limit: int, spread: float, *, upstream: bool = False) -> RestartDecision:
    """Return what becomes of a trigger that failed after it had `lived` so many seconds, and `restarts` failures in a row before.

    `spread` in [0, 1) tells triggers that fail together apart, so that they do not all come back at once. Where the `upstream` failed
    and not the trigger, it waits like any other, and uses up no more than half of what it may.
    """
    before = 0 if lived >= LONG_LIFE else restarts
    if upstream:
        again = max(before, min(before + 1, limit // 2))
        return RestartDecision(again, _wait(before + 1, spread))
    if before + 1 > limit:
        return RestartDecision(before + 1, None)
    return RestartDecision(before + 1, _wait(before + 1, spread))


def _wait(nth: int, spread: float) -> float:
    """Return the `nth` wait: twice the one before, up to `MOST`, and up to a quarter shorter."""
    return min(MOST, FIRST * 2.0 ** min(nth - 1, 30)) * (1 - spread / 4)
