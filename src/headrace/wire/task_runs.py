"""Task runs: any client starts them, a worker executes them, and they can be deferred until a trigger fires.

The API does not decode the JSON texts in them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import AfterValidator, Field, model_validator

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.control.jobs import DesiredState
from headrace.wire.control.triggers import CLASSPATH
from headrace.wire.match_pattern import MatchPattern

TaskRunState = Literal["scheduled", "running", "deferred", "succeeded", "failed", "skipped", "cancelled"]
MAX_WAIT_SECONDS = 20.0
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
"""JSON as text: validated, not parsed into objects."""

JsonObject = Annotated[str, AfterValidator(_is_object)]
"""A JSON object as text."""

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
RunId = Annotated[str, Field(min_length=1, max_length=250, pattern=r"^[\w.:\-]+$")]
Seconds = Annotated[float, Field(gt=0, le=10 * 366 * 86_400)]


class AwaitedTrigger(WireModel):
    """The serialised trigger that a run waits for."""

    classpath: str = Field(pattern=CLASSPATH, max_length=500)
    kwargs: dict[str, Any]
    queue: Name = "default"


class AwaitedEvent(WireModel):
    """The event of the log that a run waits for, fired by a trigger of its project whose name matches one of the patterns `on`.

    The event also has the given `id`, `subject` and `type`, and its payload matches the event pattern `match`.
    """

    on: list[Name] = Field(min_length=1, max_length=100)
    id: Name | None = None
    subject: Name | None = None
    type: Name | None = None
    match: MatchPattern | None = None


class WaitCondition(WireModel):
    """The trigger or event that a run waits for. The run resumes with `method`.

    After `timeout` seconds it resumes with `timeout_method`, or fails if there is none.
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
    """The tasks that start with the outcome of a run. Without `on_timeout`, a timeout starts `on_failure`."""

    on_success: Name | None = None
    on_failure: Name | None = None
    on_timeout: Name | None = None


class StartRun(WireModel):
    """POST /execution/task-runs: the same `run_id` is the same run. A run with `waiting` uses no worker until its trigger fires."""

    run_id: RunId
    task: Name
    kwargs: JsonObject = "{}"
    waiting: WaitCondition | None = None
    callbacks: Callbacks | None = None


class StartTask(StartRun):
    """POST /api/v1/task-runs: start a run in a named project."""

    project: Name


class ClaimRuns(WireModel):
    """POST /execution/task-runs/claim: take up to `capacity` runs of these tasks. `running` has the current runs of this worker.

    The call waits up to `wait` seconds for a change. It is a heartbeat too.
    """

    capacity: int = Field(ge=0, le=1_000)
    tasks: list[Name]
    running: list[RunId] = Field(default=[], max_length=1_000)
    wait: float = Field(default=0.0, ge=0, le=MAX_WAIT_SECONDS)


class ClaimedRun(WireModel):
    """A run to execute now: the task's `method` (None: the task itself) with `kwargs`, the text of a JSON object."""

    run_id: str
    task: str
    method: str | None
    kwargs: str
    attempt: int
    epoch: int


class ClaimedRuns(WireModel):
    """The claimed runs, the runs of `running` that this worker does not hold any more, and the desired state of the worker."""

    runs: list[ClaimedRun]
    revoked: list[str]
    desired_state: DesiredState


class DeferRun(WireModel):
    """POST /execution/task-runs/{id}/defer: release the worker's slot until the condition is true."""

    epoch: int
    waiting: WaitCondition


class FinishRun(WireModel):
    """POST /execution/task-runs/{id}/finish: the end of a run, with its `result` or its `error`."""

    epoch: int
    state: Literal["succeeded", "failed", "skipped"]
    result: JsonText | None = None
    error: str | None = Field(default=None, max_length=MAX_ERROR_CHARS)


class TaskRunStatus(WireModel):
    """The state of a run. `created` is true if this call created it."""

    run_id: str
    state: TaskRunState
    created: bool = False


class TaskRunResult(WireModel):
    """GET /execution/task-runs/{id}/result: the outcome of a run. `result` is JSON text."""

    run_id: str
    state: TaskRunState
    result: str | None
    error: str | None


class AwaitedTriggerStatus(WireModel):
    """The trigger that a run waits for: its state, its triggerer, and its last failure."""

    trigger_id: int
    classpath: str
    state: str
    job_id: int | None
    failure: str | None


class TaskRunSummary(WireModel):
    """One task run."""

    run_id: str
    project: str
    task: str
    state: TaskRunState
    method: str | None
    attempt: int
    step: int
    waits_for: AwaitedTriggerStatus | None
    waits_for_event: AwaitedEvent | None = None
    timeout: Timestamp | None
    job_id: int | None
    created: Timestamp
    changed: Timestamp
    finished: Timestamp | None
    error: str | None


class TaskRunDetail(TaskRunSummary):
    """One run with its arguments and its result, as JSON text."""

    kwargs: str
    result: str | None
    callbacks: Callbacks | None


class TaskRunList(WireModel):
    """GET /api/v1/task-runs: the runs that changed last are first."""

    runs: list[TaskRunSummary]
