"""How a job came to its end."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from headrace.wire.control.jobs import Blocked


@dataclass(frozen=True, slots=True)
class BlamedTrigger:
    """The trigger whose code ran when its runner died, or had to be ended after it was `blocked` for so many seconds."""

    trigger_id: int
    type: str
    stack: tuple[str, ...] = ()
    blocked: float = 0.0


@dataclass(frozen=True, slots=True)
class RunnerExit:
    """Why a job is over. `asked`: it was told to end; `lost`: the api takes nothing more of it."""

    reason: str
    asked: bool = False
    lost: bool = False
    culprit: BlamedTrigger | None = None


def ended(code: int) -> str:
    """Return how a process ended that has this exit code."""
    return (
        f"The process ended by signal {-code} ({signal.Signals(-code).name})." if code < 0 else f"The process ended with exit code {code}."
    )


def died(code: int, running: int | None) -> RunnerExit:
    """Return the end of a job whose runner has ended with `code` while the code of the trigger `running` held its loop."""
    return RunnerExit(ended(code), culprit=None if running is None else BlamedTrigger(running, "RunnerDied"))


def stuck(blocked: Blocked) -> RunnerExit:
    """Return the end of a job whose runner was blocked for too long."""
    reason = f"The runner's loop was blocked for {blocked.seconds:.0f} s."
    if blocked.trigger_id is None:
        return RunnerExit(reason)
    return RunnerExit(reason, culprit=BlamedTrigger(blocked.trigger_id, "Blocked", tuple(blocked.stack), blocked.seconds))
