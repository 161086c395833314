"""Task runs.

Started by any client, run by a worker, deferred until a trigger fires. JSON inside them is text that the api never decodes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import AfterValidator, Field, model_validator

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.control.jobs import Wanted
from headrace.wire.control.triggers import CLASSPATH

TaskRunState = Literal["scheduled", "running", "deferred", "succeeded", "failed", "skipped", "cancelled"]
MOST_WAIT = 20.0
MAX_ERROR_CHARS = 100_000
_scan = msgspec.json.Decoder(msgspec.Raw)


def _is_json(text: str) -> str:
    try:
        _scan.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if "\0" in text:
        raise ValueError("a NUL character")
    return text


def _is_object(text: str) -> str:
    if not _is_json(text).lstrip().startswith("{"):
        raise ValueError("not a JSON object")
    return text


JsonText = Annotated[str, AfterValidator(_is_json)]
"""JSON as text: scanned, never built."""

JsonObject = Annotated[str, AfterValidator(_is_object)]
"""A JSON object as text."""

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
RunId = Annotated[str, Field(min_length=1, max_length=250, pattern=r"^[\w.:\-]+$")]
Seconds = Annotated[float, Field(gt=0, le=10 * 366 * 86_400)]


class AwaitedTrigger(WireModel):
    """The trigger that a run waits for, as it is written down."""

    classpath: str = Field(pattern=CLASSPATH, max_length=500)
    kwargs: dict[str, Any]
    queue: Name = "default"


class AwaitedEvent(WireModel):
    """The event of the log that a run waits for: one that a trigger of its project fired on, whose name matches one of the patterns `on`.

    Where `id`, `subject` and `type` are given, the event has them. Payloads are not looked into: that is what a trigger's `match` is for.
    """

    on: list[Name] = Field(min_length=1, max_length=100)
    id: Name | None = None
    subject: Name | None = None
    type: Name | None = None


class Waiting(WireModel):
    """What a run waits for, a trigger or an event of the log, and how it goes on: with `method` once that comes.

    With `timeout_method` when `timeout` seconds are over; without one it fails then.
    """

    trigger: AwaitedTrigger | None = None
    event: AwaitedEvent | None = None
    method: Name | None = None
    kwargs: JsonObject = "{}"
    timeout: Seconds | None = None
    timeout_method: Name | None = None

    @model_validator(mode="after")
    def _for_one(self) -> Self:
        if (self.trigger is None) == (self.event is None):
            raise ValueError("either a trigger or an event")
        return self


class Callbacks(WireModel):
    """The tasks that are started with the outcome of a run; a timeout goes to `on_failure` where it has none of its own."""

    on_success: Name | None = None
    on_failure: Name | None = None
    on_timeout: Name | None = None


class StartRun(WireModel):
    """POST /execution/task-runs: the same `run_id` is the same run. With `waiting` no worker is used until its trigger fires."""

    run_id: RunId
    task: Name
    kwargs: JsonObject = "{}"
    waiting: Waiting | None = None
    callbacks: Callbacks | None = None


class StartTask(StartRun):
    """POST /api/v1/task-runs: the same, by a person, who says in which project."""

    project: Name


class ClaimRuns(WireModel):
    """POST /execution/task-runs/claim: take up to `capacity` runs of these tasks; say which of this worker's are `running`.

    The answer waits up to `wait` seconds for something to say. It is a sign of life too.
    """

    capacity: int = Field(ge=0, le=1_000)
    tasks: list[Name]
    running: list[RunId] = Field(default=[], max_length=1_000)
    wait: float = Field(default=0.0, ge=0, le=MOST_WAIT)


class ClaimedRun(WireModel):
    """A run to be done now: the task's `method` (None: the task itself) with `kwargs`, the text of a JSON object."""

    run_id: str
    task: str
    method: str | None
    kwargs: str
    attempt: int
    epoch: int


class RunsClaimed(WireModel):
    """The runs that were taken, those of `running` that are this worker's no longer, and what the api wants of it."""

    runs: list[ClaimedRun]
    gone: list[str]
    wanted: Wanted


class DeferRun(WireModel):
    """POST /execution/task-runs/{id}/defer: give the place up."""

    epoch: int
    waiting: Waiting


class FinishRun(WireModel):
    """POST /execution/task-runs/{id}/finish: the end of a run, with its `result` or its `error`."""

    epoch: int
    state: Literal["succeeded", "failed", "skipped"]
    result: JsonText | None = None
    error: str | None = Field(default=None, max_length=MAX_ERROR_CHARS)


class TaskRunIs(WireModel):
    """In which state a run is now; `created`: it was made by this very call."""

    run_id: str
    state: TaskRunState
    created: bool = False


class TaskRunResult(WireModel):
    """GET /execution/runs/{id}/result: what came of a run; `result` is JSON text."""

    run_id: str
    state: TaskRunState
    result: str | None
    error: str | None


class WaitedFor(WireModel):
    """The trigger that a run waits for: in which state it is, who runs it, and why it failed if it did."""

    trigger_id: int
    classpath: str
    state: str
    job_id: int | None
    failure: str | None


class TaskRun(WireModel):
    """One run, for people."""

    run_id: str
    project: str
    task: str
    state: TaskRunState
    method: str | None
    attempt: int
    step: int
    waits_for: WaitedFor | None
    waits_for_event: AwaitedEvent | None = None
    timeout: Timestamp | None
    job_id: int | None
    created: Timestamp
    changed: Timestamp
    finished: Timestamp | None
    error: str | None


class TaskRunDetail(TaskRun):
    """One run with its arguments and its result, as JSON text."""

    kwargs: str
    result: str | None
    callbacks: Callbacks | None


class TaskRunList(WireModel):
    """GET /api/v1/task-runs: those that changed last are first."""

    runs: list[TaskRun]
