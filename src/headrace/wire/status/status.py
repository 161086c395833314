"""What a person is shown: GET /api/v1/status and the lists beside it, read by the page, the demo's display and scripts."""

from __future__ import annotations

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.control.jobs import Blocked
from headrace.wire.control.streams import StreamReport
from headrace.wire.custody.dead_letters import DeadLetterState
from headrace.wire.custody.events import DeadLetterKind
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.pipelines.scopes import ScopeStatus
from headrace.wire.status.alerts import Alert
from headrace.wire.task_runs import TaskRun


class EventCount(WireModel):
    """How many events the log has taken in all, and how fast of late (events a second over the last seconds)."""

    total: int
    per_second: float


class JobStatus(WireModel):
    """One running or lately ended process. `state` is `running`, `silent` (no heartbeat of late), `lost`, `succeeded` or `failed`.

    `wanted` is what its next heartbeat is told: to run, drain or stop. `capacity` is how many triggers it takes, of the `queues` it serves,
    and `held` how many it has. `blocked` is what blocks its triggers now. `ended` and `reason` say when and why it ended.
    """

    id: int
    kind: str
    state: str
    hostname: str
    pid: int
    started: Timestamp
    last_heartbeat: Timestamp
    wanted: str = "run"
    version: str | None = None
    capacity: int | None = None
    queues: list[str] = []
    held: int = 0
    blocked: Blocked | None = None
    project: str = ""
    ended: Timestamp | None = None
    reason: str | None = None


class TriggerStatus(WireModel):
    """One registered trigger, whether a job holds it, and why it last failed if it did.

    `state` is `waiting`, `running`, `failed` (it starts again by itself) or `parked` (it does not, until it is resumed).
    `backlog` is how many raw events are kept for it now, `spilled` how many ever were; `conflicts` how many
    events it fired under an id that is known with another payload, which were dropped; `restarts` how often it has failed in a row.
    `failed` says when it last failed with `failure`, `since` since when it runs, and `blocking` for how many seconds it has blocked all
    others of its triggerer. `unserved` says why no job runs it, where no triggerer serves its queue or none has room.
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
    """One shared stream as its job last reported it; the counts include those of earlier jobs.

    `recorded` counts raw events as `headrace audit` does, durably: those read and accounted for. Where a stream has such books,
    `advanced` is that too, and `read` is that and what its job has under way; they agree when nothing is, whatever was killed.
    `lag` is how far the reported lanes are behind their ends, in the upstream's own positions; None where it tells no end.
    """

    job_id: int
    recorded: int = 0
    lag: int | None = None


class BacklogStatus(WireModel):
    """What is kept for one trigger that could not take it: how many raw events, and since when the oldest of them waits.

    A `removed` trigger is declared no more: nothing takes its backlog, which goes after the time of retention.
    """

    trigger_id: int
    trigger: str
    stream: str | None
    depth: int
    oldest: Timestamp | None
    removed: bool = False


class Totals(WireModel):
    """The headline numbers: counts since the database was made, except `waiting`, `backlog` and `dead_letters`, which are now."""

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
    """One declared pipeline and the sums of its runs. `on_failure` says what becomes of the followers of a failed event."""

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
    """One event of the log without its payload. `leader_seq` is -1 where the leader was not in the log before it."""

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


class EventDetail(EventSummary):
    """One event of the log with all that is known of it. `payload` is its JSON text, as it was stored; `runs` are those that took it."""

    stream: str | None
    lane: str | None
    position: int | None
    trace: str | None
    payload: str
    runs: list[RunReport] = []


class DeadLetterSummary(WireModel):
    """One dead letter: what was given up on, and why. `short` stands for its id wherever an id is asked for."""

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


class DeadLetterDetail(DeadLetterSummary):
    """One dead letter with the text that came and the traceback of its last attempt."""

    raw: str
    traceback: list[str]


class EventPage(WireModel):
    """Some events. Ask for `before` to go on to older ones (None: there are none), or for `after` to follow the log.

    A page may hold fewer than were asked for, or none, and not be the last: a filter looks through a bounded stretch of the log at a time.
    """

    events: list[EventSummary]
    after: int | None
    before: int | None


class DeadLetterPage(WireModel):
    """Dead letters, the newest first. `before` is what to ask for to get the next page, None at the end."""

    dead_letters: list[DeadLetterSummary]
    before: str | None


class TriggerList(WireModel):
    """GET /api/v1/triggers: by name. `after` is what to ask for to get the next page, None at the end."""

    triggers: list[TriggerStatus]
    after: int | None = None


class StreamList(WireModel):
    """GET /api/v1/streams: by name. `after` is what to ask for to get the next page, None at the end."""

    streams: list[StreamStatus]
    after: str | None = None


class RunList(WireModel):
    """GET /api/v1/runs: the newest first."""

    runs: list[RunReport]


class Health(WireModel):
    """GET /healthz: whether the database answers, and the revision of its schema."""

    status: str
    database: str
    schema_revision: str | None
    version: str


class LogExtent(WireModel):
    """What the log has without a gap: the events from `first` to `head`, the oldest of which came at `since` (None: there is none)."""

    first: int = 1
    head: int = 0
    since: Timestamp | None = None


class Counts(WireModel):
    """The size of each list of which a status shows a part.

    `jobs` counts running processes by kind, `blocked` the triggerers among them in which one trigger holds all others up. `triggers` counts
    by state; `unserved` are those that no triggerer runs. `backlogs` counts triggers for which raw events are kept.
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
    """All that the page shows, at one moment. `dead_letters` are those that are open or redriven: `letters` counts all by state.

    `alerts` names what needs a person, the worst first.
    Lists show their most important entries, what is in trouble first, and long texts are cut; `counts` has the sizes of the whole lists.
    As JSON a status takes at most 64 KiB.
    """

    version: str
    now: Timestamp
    alerts: list[Alert] = []
    head: int
    log: LogExtent = LogExtent()
    events: EventCount
    dead_letters: int
    letters: dict[DeadLetterState, int] = {}
    jobs: list[JobStatus]
    triggers: list[TriggerStatus]
    streams: list[StreamStatus]
    backlogs: list[BacklogStatus] = []
    totals: Totals
    counts: Counts = Counts()
    scopes: list[ScopeStatus]
    pipelines: list[PipelineStatus]
    runs: list[RunReport]
    task_runs: list[TaskRun] = []
    recent: list[EventSummary]
