"""Task runs: every state, and every step from one to another.

    begin ─► scheduled ─claim─► running ─finish─► succeeded | failed | skipped
                 ▲  ▲              │ │
                 │  └────lose──────┘ └─defer─► deferred ─fire, expire, strand─► scheduled, or an end in place
                 └──────────────────────────────────┘
    begin may also give `deferred`; cancel leads from all that is not an end to `cancelled`.

The law:
- an end is final, and only a running run has a holder that counts;
- the epoch goes up with every claim and every loss and never down, so that an earlier owner of the run is told apart permanently;
- what fires is spliced into the keyword arguments as the text that it is: exactly one event ends a wait, and the next is refused;
- a run begins its step again when its worker is lost, `MOST_ATTEMPTS` times in all: a task that kills its workers must not do so without
end. A step that is not allowed raises `IllegalStep` and changes nothing; times are microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from headrace.errors import IllegalStep

State: TypeAlias = Literal["scheduled", "running", "deferred", "succeeded", "failed", "skipped", "cancelled"]
Finish: TypeAlias = Literal["succeeded", "failed", "skipped"]
Step: TypeAlias = Literal["claim", "lose", "defer", "finish", "fire", "expire", "strand", "cancel"]

ENDS: Final[frozenset[State]] = frozenset({"succeeded", "failed", "skipped", "cancelled"})
ALLOWED: Final[Mapping[Step, frozenset[State]]] = {
    "claim": frozenset({"scheduled"}),
    "lose": frozenset({"running"}),
    "defer": frozenset({"running"}),
    "finish": frozenset({"running"}),
    "fire": frozenset({"deferred"}),
    "expire": frozenset({"deferred"}),
    "strand": frozenset({"deferred"}),
    "cancel": frozenset({"scheduled", "running", "deferred"}),
}
"""From which states each step may be taken."""

RUN_SUCCEEDED: Final = "headrace.run.succeeded"
RUN_FAILED: Final = "headrace.run.failed"
RUN_SKIPPED: Final = "headrace.run.skipped"
TERMINAL: Final[Mapping[str, Finish]] = {RUN_SUCCEEDED: "succeeded", RUN_FAILED: "failed", RUN_SKIPPED: "skipped"}
"""The types of the events that end a deferred run in place."""

MOST_ATTEMPTS: Final = 5
TIMED_OUT: Final = "The deferral timed out: its trigger did not fire in time."


@dataclass(frozen=True, slots=True)
class Continuation:
    """What a run does once its trigger fires (`method`, with `kwargs`: the text of a JSON object), and when it waits no longer.

    At `timeout_at` it goes on with `timeout_method`, or fails where that is None.
    """

    method: str | None
    kwargs: str
    timeout_at: int | None = None
    timeout_method: str | None = None


@dataclass(frozen=True, slots=True)
class TaskRunState:
    """One run. `wait` says how it goes on: now where it is scheduled or running, later where it is deferred.

    `attempt` counts how often a worker has begun its present step, `step` how often it has deferred.
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
        """Whether nothing can happen to it any more."""
        return self.state in ENDS


def begin(kwargs: str, wait: Continuation | None = None) -> TaskRunState:
    """Return a new run: scheduled with `kwargs`, or deferred from its beginning where it is to `wait` first."""
    return TaskRunState("scheduled", Continuation(None, kwargs)) if wait is None else TaskRunState("deferred", wait, step=1)


def claim(run: TaskRunState, job: int) -> TaskRunState:
    """A worker takes the run and begins its step."""
    _allow(run, "claim")
    return replace(run, state="running", holder=job, epoch=run.epoch + 1, attempt=run.attempt + 1)


def lose(run: TaskRunState) -> TaskRunState:
    """Its worker died: another begins the step again, or the run fails where that has happened too often."""
    _allow(run, "lose")
    lost = replace(run, epoch=run.epoch + 1, holder=None)
    if run.attempt >= MOST_ATTEMPTS:
        return _end(lost, "failed", error=f"{run.attempt} workers ended while they ran it.")
    return replace(lost, state="scheduled")


def defer(run: TaskRunState, wait: Continuation) -> TaskRunState:
    """The run gives its place up."""
    _allow(run, "defer")
    return replace(run, state="deferred", wait=wait, step=run.step + 1, attempt=0)


def finish(run: TaskRunState, how: Finish, text: str | None) -> TaskRunState:
    """The run ends by itself; `text` is its result as JSON, or why it failed."""
    _allow(run, "finish")
    return _end(run, how, error=text) if how == "failed" else _end(run, how, result=text)


def fire(run: TaskRunState, type: str, payload: str) -> TaskRunState:
    """Its trigger fired: it goes on with the payload as `event`, or ends in place where the type says so."""
    _allow(run, "fire")
    how = TERMINAL.get(type)
    if how is None:
        return _resume(run, run.wait.method, splice(run.wait.kwargs, "event", payload))
    return _end(run, how, error=payload) if how == "failed" else _end(run, how, result=payload)


def expire(run: TaskRunState, why: str | None = None) -> TaskRunState:
    """Its time is up; `why` says what its trigger last failed with, if it did."""
    _allow(run, "expire")
    if run.wait.timeout_method is None:
        return _end(run, "failed", error=TIMED_OUT if why is None else f"{TIMED_OUT} {why}")
    return _resume(run, run.wait.timeout_method, run.wait.kwargs)


def strand(run: TaskRunState, why: str) -> TaskRunState:
    """Its trigger is gone and will never fire."""
    _allow(run, "strand")
    return _end(run, "failed", error=why)


def cancel(run: TaskRunState) -> TaskRunState:
    """Its cancellation was requested. A worker that runs it is fenced from now on."""
    _allow(run, "cancel")
    return _end(replace(run, epoch=run.epoch + 1), "cancelled")


def splice(kwargs: str, name: str, value: str) -> str:
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
        raise IllegalStep(f"A run that is {run.state} cannot {step}.")
