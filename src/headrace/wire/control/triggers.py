"""Triggers: what a project declares, what a triggerer claims, and what it needs to run one."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headrace.wire.base import WireModel
from headrace.wire.control.jobs import Lease

CLASSPATH = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"
"""A module and the name of a class in it; the api never imports one."""

MAX_STAGED = 2_000
"""Triggers that one page of a declaration may have."""

MAX_FAILED = 1_000
"""Watches that one call may tell of."""


class DeclaredTrigger(WireModel):
    """One trigger of a project, as the api keeps it. `stream` is the text of its stream key, or None if it polls alone.

    Only a triggerer that serves its `queue` claims it; the higher `priority` is claimed first. After `max_restarts` failures in a row
    (None: what the api has for all) it is parked. All triggers of one stream share one job, which must serve the queues of all of them.
    """

    name: str = Field(min_length=1, max_length=200)
    classpath: str = Field(pattern=CLASSPATH, max_length=500)
    kwargs: dict[str, Any]
    stream: str | None = None
    queue: str = Field(default="default", min_length=1, max_length=200)
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    max_restarts: int | None = Field(default=None, ge=0, le=1_000_000)


class DeclaredPipeline(WireModel):
    """One pipeline of a project: which triggers' events it takes (glob patterns), and the table it fills."""

    name: str = Field(min_length=1, max_length=200)
    on: list[str]
    table: str | None = None
    batch: str = "micro"
    on_failure: str = "release"


class DeclareProject(WireModel):
    """PUT /execution/projects/{name}: the whole of what a project declares. Triggers no longer named are removed.

    With `staged` its triggers are the `count` that were sent in pages under this id, and `triggers` is empty. The call applies a part of
    them, from the name `after` on; repeat it, with the answer's `after`, until that is `done`.
    """

    triggers: list[DeclaredTrigger]
    pipelines: list[DeclaredPipeline]
    staged: str | None = Field(default=None, min_length=8, max_length=64)
    count: int = Field(default=0, ge=0)
    after: str = Field(default="", max_length=200)


class StageTriggers(WireModel):
    """POST /execution/declarations: a page of the triggers of a declaration, which has an id of its own. The same again changes nothing."""

    declaration: str = Field(min_length=8, max_length=64)
    triggers: list[DeclaredTrigger] = Field(max_length=MAX_STAGED)


class ProjectDeclared(WireModel):
    """The ids of the project's triggers, by name; none where they were staged. Not `done`: repeat the call."""

    triggers: dict[str, int]
    done: bool = True
    after: str = ""


class LoadTriggers(WireModel):
    """POST /execution/triggers/load: claim up to `capacity` triggers of these `queues`; all triggers of one stream come together.

    Both are kept with the job, since what the others may have is reckoned with them. Nothing is claimed, and nothing given back, but here:
    ask with each heartbeat.

    `since` is the revision of the last answer, "" before the first: the answer has what is different from that. Without it, the answer has
    everything.
    """

    capacity: int = Field(gt=0, le=1_000_000_000)
    queues: list[str] = ["default"]
    since: str | None = Field(default=None, max_length=64)


class TriggersLoaded(WireModel):
    """Every lease the job now holds (not only new ones), and the trigger ids that it must let go.

    What is held and not `revoked` is to run. A trigger that is in both is given back to another job: its events are still taken, under the
    same epoch, until the job says with `CleanupTriggers` that it has stopped; no other job gets it before. One that is only in `revoked`
    has changed or is gone: what it resolved before may still be stored, and that it stopped is to be said as well. All that is given
    back of a stream goes together. So: stop reading, store what was resolved, advance what is confirmed, then clean up. A trigger that is
    held again at a new epoch is not in `revoked`: stop it and start it again, without a cleanup.

    Where the call named a revision, only triggers that differ from it are here: what is said of one replaces all that was said of it
    before, and those that are `gone` are in neither list any more. `whole`: the revision was not known, so what was held before is to be
    forgotten first. `more`: ask again at once, since the revision of this answer; until there is no more, start and stop nothing.
    """

    leases: list[Lease]
    revoked: list[int]
    gone: list[int] = []
    revision: str = ""
    whole: bool = True
    more: bool = False


class FetchWorkloads(WireModel):
    """POST /execution/triggers/workloads."""

    trigger_ids: list[int]


class RunTrigger(WireModel):
    """A workload: all a triggerer needs to run one trigger.

    One that is `parked` failed too often and is not to be started: it is registered with its stream, so that what is for it is kept in
    its backlog (as is what is for a trigger that cannot be loaded), and its backlog is not drained. When it is resumed it comes again,
    not parked, at a new epoch. `start_after` is how many seconds to wait before it is started, because it failed lately; it is registered
    at once. `restarts` says how often it has failed in a row.
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
    trouble: str | None = None
    parked: bool = False
    start_after: float = 0.0
    restarts: int = 0
    run_id: str | None = None


class Workloads(WireModel):
    """The workloads of the triggers asked for that this job holds."""

    workloads: list[RunTrigger]


class TriggerName(WireModel, extra="ignore"):
    """A trigger and its log, read from its workload."""

    trigger_id: int
    name: str
    log_name: str


class WorkloadNames(WireModel):
    """`Workloads` for a process that passes them on and runs none."""

    workloads: list[TriggerName]


class TriggerFailure(WireModel):
    """POST /execution/triggers/{id}/failure: why a trigger failed.

    `number` counts the failures of this trigger under this epoch, from 1: the same number again is a replay and is not counted twice
    (0: every call counts). `upstream` says that the stream failed and not the trigger: it restarts with the same waits, and is never
    parked for it. `type` names what it raised (or `Blocked`, or `RunnerDied`). For its last `blocked` seconds it did nothing but hold up
    its runner: they are no part of the life after which failures are counted again.
    """

    epoch: int
    number: int = Field(default=0, ge=0)
    upstream: bool = False
    blocked: float = Field(default=0.0, ge=0)
    type: str
    message: str
    traceback: list[str] = []


class StreamFailure(WireModel):
    """POST /execution/triggers/failures: a stream failed, and with it its declared watches.

    `report` names this failure of the stream: the same again is a replay. `epochs` are the watches with their epochs; of more than a call
    takes, several calls tell with the same `report`. A watch that the job does not hold at its epoch is left out.
    """

    report: str = Field(min_length=8, max_length=64)
    epochs: dict[int, int] = Field(min_length=1, max_length=MAX_FAILED)
    type: str
    message: str
    traceback: list[str] = []


class StreamFailureRecorded(WireModel):
    """The answer: in how many seconds to open the stream again. No watch is ever parked for its stream's failures."""

    retry_in: float


class FailureRecorded(WireModel):
    """The answer to a failure, which decides what comes next.

    `restart`: start it again after `retry_in` seconds. `parked`: do not start it again; what is for it on a shared stream is kept in its
    backlog from now on (see `RunTrigger`), until it is resumed or declared otherwise.
    """

    verdict: Literal["restart", "parked"]
    retry_in: float = 0.0
    restarts: int


class CleanupTriggers(WireModel):
    """POST /execution/triggers/cleanup: the job has stopped these triggers, and all they resolved is stored: others may have them now.

    With `epochs`, a lease that is newer than the epoch given for it stays: a call that comes late gives up nothing that is run again.
    """

    trigger_ids: list[int]
    epochs: dict[int, int] = {}
