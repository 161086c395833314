"""Task runs: every state, and every step from one to another.

    begin ─► scheduled ─claim─► running ─finish─► succeeded | failed | skipped
                 ▲  ▲              │ │
                 │  └─worker_lost──┘ └─defer─► deferred ─fire, expire, trigger_lost─► scheduled, or an end in place
                 └──────────────────────────────────┘
    begin may also give `deferred`; cancel leads from every state that is not an end to `cancelled`.

The law:
- an end is final, and only a running run has a holder;
- the epoch increases with every claim and every loss, and never decreases, so that earlier holders are fenced permanently;
- the payload of the trigger event is added to the keyword arguments as text. Exactly one event ends a wait; later ones are rejected;
- a run begins its step again when its worker is lost, up to `MAX_ATTEMPTS` attempts: a task that kills its workers must end.

A step that is not allowed raises `IllegalStep` and changes nothing. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from headrace.errors import IllegalStep

State: TypeAlias = Literal["scheduled", "running", "deferred", "succeeded", "failed", "skipped", "cancelled"]
Finish: TypeAlias = Literal["succeeded", "failed", "skipped"]
Step: TypeAlias = Literal["claim", "worker_lost", "defer", "finish", "fire", "expire", "trigger_lost", "cancel"]

ENDS: Final[frozenset[State]] = frozenset({"succeeded", "failed", "skipped", "cancelled"})
ALLOWED: Final[Mapping[Step, frozenset[State]]] = {
    "claim": frozenset({"scheduled"}),
    "worker_lost": frozenset({"running"}),
    "defer": frozenset({"running"}),
    "finish": frozenset({"running"}),
    "fire": frozenset({"deferred"}),
    "expire": frozenset({"deferred"}),
    "trigger_lost": frozenset({"deferred"}),
    "cancel": frozenset({"scheduled", "running", "deferred"}),
}
"""The states in which each step is allowed."""

RUN_SUCCEEDED: Final = "headrace.run.succeeded"
RUN_FAILED: Final = "headrace.run.failed"
RUN_SKIPPED: Final = "headrace.run.skipped"
TERMINAL: Final[Mapping[str, Finish]] = {RUN_SUCCEEDED: "succeeded", RUN_FAILED: "failed", RUN_SKIPPED: "skipped"}
"""The types of events that end a deferred task run without a worker."""

MAX_ATTEMPTS: Final = 5
TIMED_OUT: Final = "The deferral timed out: its trigger did not fire in time."


@dataclass(frozen=True, slots=True)
class Continuation:
    """The next step of a deferred task run: `method` with `kwargs` (the text of a JSON object) when its trigger fires.

    At `timeout_at` it continues with `timeout_method`, or fails if there is none.
    """

    method: str | None
    kwargs: str
    timeout_at: int | None = None
    timeout_method: str | None = None


@dataclass(frozen=True, slots=True)
class TaskRunState:
    """The state of one task run. `wait` is its current step if it is scheduled or running, and its next one if it is deferred.

    `attempt` counts the attempts at the current step, `step` the deferrals.
    """

    state: State
    wait: Continuation
    attempt: int = 0
    step: int = 0
    epoch: int = 0
    holder: int | None = None
    result: str | None = None
    error: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.state in ENDS


def begin(kwargs: str, wait: Continuation | None = None) -> TaskRunState:
    """Return a new run: scheduled with `kwargs`, or deferred from its beginning if it has a `wait`."""
    return TaskRunState("scheduled", Continuation(None, kwargs)) if wait is None else TaskRunState("deferred", wait, step=1)


def claim(run: TaskRunState, job: int) -> TaskRunState:
    """Assign the run to a worker, which begins its step."""
    _allow(run, "claim")
    return replace(run, state="running", holder=job, epoch=run.epoch + 1, attempt=run.attempt + 1)


def worker_lost(run: TaskRunState) -> TaskRunState:
    """Schedule the step of a run again whose worker is lost, or fail the run after `MAX_ATTEMPTS` attempts."""
    _allow(run, "worker_lost")
    lost = replace(run, epoch=run.epoch + 1, holder=None)
    if run.attempt >= MAX_ATTEMPTS:
        return _end(lost, "failed", error=f"{run.attempt} workers ended while they ran it.")
    return replace(lost, state="scheduled")


def defer(run: TaskRunState, wait: Continuation) -> TaskRunState:
    """Defer the run, which frees its worker."""
    _allow(run, "defer")
    return replace(run, state="deferred", wait=wait, step=run.step + 1, attempt=0)


def finish(run: TaskRunState, how: Finish, text: str | None) -> TaskRunState:
    """End a running run. `text` is its result as JSON, or the reason of its failure."""
    _allow(run, "finish")
    return _end(run, how, error=text) if how == "failed" else _end(run, how, result=text)


def fire(run: TaskRunState, type: str, payload: str) -> TaskRunState:
    """Schedule a deferred task run with the payload as argument `event`, or end it if the type is in `TERMINAL`."""
    _allow(run, "fire")
    how = TERMINAL.get(type)
    if how is None:
        return _resume(run, run.wait.method, with_argument(run.wait.kwargs, "event", payload))
    return _end(run, how, error=payload) if how == "failed" else _end(run, how, result=payload)


def expire(run: TaskRunState, why: str | None = None) -> TaskRunState:
    """End the wait of a run at its timeout. `why` is the last failure of its trigger, if any."""
    _allow(run, "expire")
    if run.wait.timeout_method is None:
        return _end(run, "failed", error=TIMED_OUT if why is None else f"{TIMED_OUT} {why}")
    return _resume(run, run.wait.timeout_method, run.wait.kwargs)


def trigger_lost(run: TaskRunState, why: str) -> TaskRunState:
    """Fail a run whose trigger is deleted, so that it can never fire."""
    _allow(run, "trigger_lost")
    return _end(run, "failed", error=why)


def cancel(run: TaskRunState) -> TaskRunState:
    """Cancel a run. A worker that runs it is fenced."""
    _allow(run, "cancel")
    return _end(replace(run, epoch=run.epoch + 1), "cancelled")


def with_argument(kwargs: str, name: str, value: str) -> str:
    """Return the JSON object `kwargs` with one more member, whose value is JSON text that is not parsed."""
    inside = kwargs.strip()[1:-1].strip()
    return f'{{{inside}{"," if inside else ""}"{name}":{value}}}'


def _resume(run: TaskRunState, method: str | None, kwargs: str) -> TaskRunState:
    return replace(run, state="scheduled", wait=Continuation(method, kwargs), attempt=0)


def _end(run: TaskRunState, state: State, *, result: str | None = None, error: str | None = None) -> TaskRunState:
    wait = replace(run.wait, timeout_at=None)
    return replace(run, state=state, wait=wait, result=result, error=error)


def _allow(run: TaskRunState, step: Step) -> None:
    if run.state not in ALLOWED[step]:
        raise IllegalStep(f"A run that is {run.state} cannot take the step {step}.")
