"""Triggers: their declaration by a project, their leases and workloads."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headrace.wire.base import WireModel
from headrace.wire.control.jobs import Lease

CLASSPATH = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"
"""A module and the name of a class in it. The API never imports it."""

MAX_STAGED = 2_000
"""Triggers of one page of a declaration."""

MAX_FAILED = 1_000
"""Watches of one call."""


class DeclaredTrigger(WireModel):
    """One trigger of a project, as the API stores it. `stream` is the text of its stream key, or None if it polls alone.

    Only a triggerer that serves its `queue` acquires it, triggers with a higher `priority` first. After `max_restarts` failures in a row
    (by default the API's limit), it is parked. All triggers of one stream share one job, which must serve the queues of all of them.
    """

    name: str = Field(min_length=1, max_length=200)
    classpath: str = Field(pattern=CLASSPATH, max_length=500)
    kwargs: dict[str, Any]
    stream: str | None = None
    queue: str = Field(default="default", min_length=1, max_length=200)
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    max_restarts: int | None = Field(default=None, ge=0, le=1_000_000)


class DeclaredPipeline(WireModel):
    """One pipeline of a project: the triggers whose events it takes (glob patterns), and its table."""

    name: str = Field(min_length=1, max_length=200)
    on: list[str]
    table: str | None = None
    batch: str = "micro"
    on_failure: str = "release"


class DeclareProject(WireModel):
    """PUT /execution/projects/{name}: the complete declaration of a project. Triggers that it does not name are removed.

    With `staged`, the triggers are the `count` triggers that were sent in pages under this id, and `triggers` is empty. The call applies a
    part of them, from the name `after` on. Repeat it with the `after` of the response until that is `done`.
    """

    triggers: list[DeclaredTrigger]
    pipelines: list[DeclaredPipeline]
    staged: str | None = Field(default=None, min_length=8, max_length=64)
    count: int = Field(default=0, ge=0)
    after: str = Field(default="", max_length=200)


class StageTriggers(WireModel):
    """POST /execution/declarations: one page of the triggers of a declaration, which has its own id. A repeated page changes nothing."""

    declaration: str = Field(min_length=8, max_length=64)
    triggers: list[DeclaredTrigger] = Field(max_length=MAX_STAGED)


class ProjectDeclared(WireModel):
    """The ids of the project's triggers by name, empty for a staged declaration. Repeat the call until it is `done`."""

    triggers: dict[str, int]
    done: bool = True
    after: str = ""


class LoadTriggers(WireModel):
    """POST /execution/triggers/load: acquire up to `capacity` triggers of these `queues`. All triggers of one stream come together.

    Both values are stored with the job, because the shares of all jobs depend on them. Only this call acquires or returns triggers. Send it
    with each heartbeat.

    `since` is the revision of the last response, or "" before the first one: the response then has the differences from that revision.
    Without `since`, the response has all leases.
    """

    capacity: int = Field(gt=0, le=1_000_000_000)
    queues: list[str] = ["default"]
    since: str | None = Field(default=None, max_length=64)


class TriggersLoaded(WireModel):
    """All leases that the job holds now, and the triggers that it must release, with the last epoch of each.

    Run the triggers that are held and not `revoked`. A trigger in both lists moves to another job: its events are still stored under the
    same epoch until the job sends `CleanupTriggers`, and no other job gets it before. A trigger only in `revoked` was changed or removed:
    its results so far may still be stored, and the job sends `CleanupTriggers` for it too. Revoked triggers of one stream are released
    together, in this order: stop reading, store the results, advance what is confirmed, clean up. `CleanupTriggers` names the epochs that
    `revoked` names: the job may never have received a lease that it must release. A trigger that is held at a new epoch is not in
    `revoked`: restart it without a cleanup.

    If the call named a revision, the lists have only triggers that differ from it. An entry replaces all earlier entries of its trigger,
    and `removed` triggers are in neither list any more. `whole` means that the revision was unknown: discard the earlier entries. `more`
    means
    that the response is incomplete: call again at once with the revision of this response, and start and stop nothing until `more` is
    false.
    """

    leases: list[Lease]
    revoked: dict[int, int]
    removed: list[int] = []
    revision: str = ""
    whole: bool = True
    more: bool = False


class FetchWorkloads(WireModel):
    """POST /execution/triggers/workloads."""

    trigger_ids: list[int]


class RunTrigger(WireModel):
    """A workload: everything that a triggerer needs to run one trigger.

    A `parked` trigger failed too often. Register it with its stream, but do not start it or drain its backlog: its events go to the
    backlog. The same applies to a trigger that cannot be loaded. A resumed trigger comes again, not parked, at a new epoch. `start_after`
    is the number of seconds before its start, because it failed recently. It is registered at once. `restarts` counts its failures in a
    row.
    """

    trigger_id: int
    name: str
    classpath: str
    kwargs: dict[str, Any]
    stream: str | None
    queue: str
    epoch: int
    log_name: str
    backlog: int = 0
    load_error: str | None = None
    parked: bool = False
    start_after: float = 0.0
    restarts: int = 0
    run_id: str | None = None


class Workloads(WireModel):
    """The workloads of the requested triggers that the job holds."""

    workloads: list[RunTrigger]


class TriggerName(WireModel, extra="ignore"):
    """A trigger and its log, read from its workload."""

    trigger_id: int
    name: str
    log_name: str


class WorkloadNames(WireModel):
    """`Workloads` as the process reads them that forwards workloads to a runner."""

    workloads: list[TriggerName]


class TriggerFailure(WireModel):
    """POST /execution/triggers/{id}/failure: the reason of a trigger's failure.

    `number` counts the failures of this trigger under this epoch, from 1. A repeated number is a repeated call and is not counted twice; 0
    counts each call. `upstream` means that the stream failed and not the trigger: it restarts with the same delays and is never parked.
    `type` names the exception, `Blocked` or `RunnerDied`. During the last `blocked` seconds it only blocked its runner. They do not count
    as time without a failure.
    """

    epoch: int
    number: int = Field(default=0, ge=0)
    upstream: bool = False
    blocked: float = Field(default=0.0, ge=0)
    type: str
    message: str
    traceback: list[str] = []


class StreamFailure(WireModel):
    """POST /execution/triggers/failures: a stream failed, and its declared watches with it.

    `report` identifies this failure of the stream: a repeated report changes nothing. `epochs` has the watches with their epochs. If one
    call cannot take all of them, several calls use the same `report`. Watches that the job does not hold at that epoch are ignored.
    """

    report: str = Field(min_length=8, max_length=64)
    epochs: dict[int, int] = Field(min_length=1, max_length=MAX_FAILED)
    type: str
    message: str
    traceback: list[str] = []


class StreamFailureRecorded(WireModel):
    """The number of seconds before the stream is opened again. Failures of a stream never park a watch."""

    retry_in: float


class FailureRecorded(WireModel):
    """The decision on a failed trigger.

    `restart`: start it again after `retry_in` seconds. `parked`: do not start it again. Its events of a shared stream go to its backlog
    (see `RunTrigger`) until it is resumed or its declaration changes.
    """

    decision: Literal["restart", "parked"]
    retry_in: float = 0.0
    restarts: int


class CleanupTriggers(WireModel):
    """POST /execution/triggers/cleanup: the job has stopped these triggers and stored their results. Other jobs may acquire them.

    With `epochs`, a lease with a newer epoch stays, so that a late call does not release a trigger that runs again.
    """

    trigger_ids: list[int]
    epochs: dict[int, int] = {}
