"""GET /api/v1/status and the lists beside it, for the status page, the demo and scripts."""

from __future__ import annotations

from typing import Any, Literal

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.control.jobs import Blocked
from headrace.wire.control.streams import StreamReport
from headrace.wire.custody.dead_letters import DeadLetterState
from headrace.wire.custody.events import DeadLetterKind
from headrace.wire.event_schema import OptionalEventFields
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.pipelines.scopes import EventInScope, ScopeStatus
from headrace.wire.status.alerts import Alert
from headrace.wire.task_runs import TaskRunSummary


class EventCount(WireModel):
    """The number of events that the log has stored in all, and the current rate (events per second)."""

    total: int
    per_second: float


class JobStatus(WireModel):
    """One process that runs or ended recently. `state` is `running`, `silent` (no recent heartbeat), `lost`, `succeeded` or `failed`.

    `desired_state` is sent with its next heartbeat: run, drain or stop. `capacity` limits its triggers, which are of the `queues` that it
    serves; `held` is their number. `blocked` says what blocks its triggers now. `ended` and `reason` say when and why it ended.
    """

    id: int
    kind: str
    state: str
    hostname: str
    pid: int
    started: Timestamp
    last_heartbeat: Timestamp
    desired_state: str = "run"
    version: str | None = None
    capacity: int | None = None
    queues: list[str] = []
    held: int = 0
    blocked: Blocked | None = None
    project: str = ""
    ended: Timestamp | None = None
    reason: str | None = None


class TriggerStatus(WireModel):
    """One registered trigger, the job that holds it, and its last failure.

    `state` is `waiting`, `running`, `failed` (it restarts by itself) or `parked` (it needs to be resumed). `backlog` is the number of raw
    events in its backlog now, `spilled` their number over time. `conflicts` counts its events with a known id and another payload, which
    were dropped. `restarts` counts its failures in a row. `failed` is the time of its last `failure`, `since` the time of its start, and
    `blocking` the number of seconds for which it has blocked its triggerer. `unserved` says why no job runs it: no triggerer serves its
    queue, or none has capacity.
    """

    id: int
    name: str
    stream: str | None
    state: str
    fired: int
    rejected: int
    job_id: int | None
    failure: str | None
    backlog: int = 0
    spilled: int = 0
    conflicts: int = 0
    queue: str = "default"
    priority: int = 0
    restarts: int = 0
    unserved: str | None = None
    failed: Timestamp | None = None
    since: Timestamp | None = None
    blocking: float | None = None


class StreamStatus(StreamReport):
    """One shared stream as its job last reported it; the counters include those of earlier jobs.

    `recorded` counts raw events as `headrace audit` does, durably: those read and accounted for. For a stream with receipts,
    `counters.advanced` equals `recorded`, and `counters.read` is `recorded` plus the raw events that its job is processing.
    `lag` is how far the reported lanes are behind their ends, in the upstream's own positions, or None if it reports no ends.
    `copied` dead letters are copied to the broker, which permanently rejected `rejected_copies`. Up to 10,000 `uncopied` ones wait. These
    numbers are null if dead letters were never copied.
    """

    job_id: int
    recorded: int = 0
    lag: int | None = None
    copied: int | None = None
    rejected_copies: int | None = None
    uncopied: int | None = None


class BacklogStatus(WireModel):
    """The backlog of one trigger: the number of its raw events, and the time of the oldest one.

    A `removed` trigger is not declared any more. Its backlog is deleted after the retention time.
    """

    trigger_id: int
    trigger: str
    stream: str | None
    depth: int
    oldest: Timestamp | None
    removed: bool = False


class Totals(WireModel):
    """Totals since the database was created, except `waiting`, `backlog` and `dead_letters`, which are current numbers."""

    read: int = 0
    fired: int = 0
    stored: int = 0
    advanced: int = 0
    waiting: int = 0
    ordered: int = 0
    lost: int = 0
    late: int = 0
    cycles: int = 0
    runs: int = 0
    rows: int = 0
    dead_letters: int = 0
    backlog: int = 0


class PipelineStatus(WireModel):
    """One declared pipeline and the totals of its runs. `on_failure` says whether followers of a failed event are released or held."""

    name: str
    on: list[str]
    table: str | None
    on_failure: str = "release"
    runs: int
    failed: int
    events: int
    rows: int
    last_run: Timestamp | None


class EventSummary(WireModel):
    """One event of the log without its payload. `leader_seq` is -1 if the leader was not in the log before it."""

    seq: int
    type: str
    subject: str | None
    id: str
    source: str
    follows: str | None
    leader_seq: int
    occurred: Timestamp
    received: Timestamp
    triggers: list[str]


class EventLeader(WireModel):
    """The leader of an event in the log: `stored`, `pruned` (it was in the log), or `missing`. Times are those of the log."""

    state: Literal["stored", "pruned", "missing"]
    seq: int | None = None
    received: Timestamp | None = None


class EventDetail(EventSummary, OptionalEventFields):
    """One event of the log with all its fields. `payload` is the stored JSON text; `runs` are the pipeline runs that took it.

    `leader` is null if the event follows no other. `scopes` has the scopes of pipelines that began before the event, and the webhooks and
    task runs that have not handled it yet.
    """

    payload: str
    runs: list[RunReport] = []
    leader: EventLeader | None = None
    scopes: list[EventInScope] = []


class DeadLetterSummary(WireModel):
    """One dead letter: its origin and the reason. Calls accept `short` in place of its id.

    `not_copied` is the reason why the broker rejected its copy, or null.
    """

    id: str
    short: str = ""
    kind: DeadLetterKind
    reason: str
    stream: str
    lane: str | None
    position: int | None
    triggers: list[str]
    attempts: int
    received: Timestamp
    state: DeadLetterState = "open"
    not_copied: str | None = None


class DeadLetterDetail(DeadLetterSummary):
    """One dead letter with its raw text, the metadata of its message if the broker has any, and the traceback of its last attempt."""

    raw: str
    metadata: dict[str, Any] = {}
    traceback: list[str]


class EventPage(WireModel):
    """A page of events. Continue with `before` for older ones (null: there are none), or with `after` to follow the log.

    A page may be short or empty and not be the last one, because a filter scans a limited part of the log at a time.
    """

    events: list[EventSummary]
    after: int | None
    before: int | None


class DeadLetterPage(WireModel):
    """Dead letters, the newest first. Continue with `before`, which is null at the end."""

    dead_letters: list[DeadLetterSummary]
    before: str | None


class TriggerList(WireModel):
    """GET /api/v1/triggers: triggers by name. Continue with `after`, which is null at the end."""

    triggers: list[TriggerStatus]
    after: int | None = None


class StreamList(WireModel):
    """GET /api/v1/streams: streams by name. Continue with `after`, which is null at the end."""

    streams: list[StreamStatus]
    after: str | None = None


class RunList(WireModel):
    """GET /api/v1/runs: the newest first."""

    runs: list[RunReport]


class Health(WireModel):
    """GET /healthz: the state of the database, and the revision of its schema."""

    status: str
    database: str
    schema_revision: str | None
    version: str


class LogExtent(WireModel):
    """The part of the log without gaps: the events from `first` to `head`.

    `since` is the time of the oldest one, or null if there is none.
    """

    first: int = 1
    head: int = 0
    since: Timestamp | None = None


class ListSizes(WireModel):
    """The complete sizes of the lists that a status cuts.

    `jobs` counts running processes by kind. `blocked` counts triggerers in which one trigger blocks all others. `triggers` counts by state;
    `unserved` are triggers without a triggerer. `backlogs` counts triggers with raw events in their backlogs.
    """

    jobs: dict[str, int] = {}
    blocked: int = 0
    triggers: dict[str, int] = {}
    unserved: int = 0
    streams: int = 0
    backlogs: int = 0
    scopes: int = 0
    pipelines: int = 0


class Status(WireModel):
    """The state of the installation at one time, as the status page shows it. `dead_letters` counts open and redriven ones;
    `dead_letter_counts` counts all by state.

    `alerts` has the worst problems first. Lists have their most important entries, failures first, and long texts are cut; `counts` has the
    complete sizes. As JSON, a status has at most 64 KiB.
    """

    version: str
    now: Timestamp
    alerts: list[Alert] = []
    head: int
    log: LogExtent = LogExtent()
    events: EventCount
    dead_letters: int
    dead_letter_counts: dict[DeadLetterState, int] = {}
    jobs: list[JobStatus]
    triggers: list[TriggerStatus]
    streams: list[StreamStatus]
    backlogs: list[BacklogStatus] = []
    totals: Totals
    counts: ListSizes = ListSizes()
    scopes: list[ScopeStatus]
    pipelines: list[PipelineStatus]
    runs: list[RunReport]
    task_runs: list[TaskRunSummary] = []
    recent: list[EventSummary]
