"""Why a job ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from headrace.wire.control.jobs import Blocked


@dataclass(frozen=True, slots=True)
class BlamedTrigger:
    """The trigger whose code ran when its runner died, or was killed after a block of `blocked` seconds."""

    trigger_id: int
    type: str
    stack: tuple[str, ...] = ()
    blocked: float = 0.0


@dataclass(frozen=True, slots=True)
class RunnerExit:
    """Why a job ended. `requested`: by a stop request. `lost`: the API accepts nothing more of the job."""

    reason: str
    requested: bool = False
    lost: bool = False
    blamed: BlamedTrigger | None = None


def exit_reason(code: int) -> str:
    """Return the reason text for a process's exit code."""
    return (
        f"The process ended by signal {-code} ({signal.Signals(-code).name})." if code < 0 else f"The process ended with exit code {code}."
    )


def crashed(code: int, running: int | None) -> RunnerExit:
    """Return the exit of a job whose runner ended with `code` while trigger `running` held its loop."""
    return RunnerExit(exit_reason(code), blamed=None if running is None else BlamedTrigger(running, "RunnerDied"))


def stuck(blocked: Blocked) -> RunnerExit:
    """Return the exit of a job whose runner was blocked for too long."""
    reason = f"The runner's loop was blocked for {blocked.seconds:.0f} s."
    if blocked.trigger_id is None:
        return RunnerExit(reason)
    return RunnerExit(reason, blamed=BlamedTrigger(blocked.trigger_id, "Blocked", tuple(blocked.stack), blocked.seconds))
