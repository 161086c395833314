"""The calls of the execution API, for triggerers, pipelines and workers.

To add one: its models in `headrace.wire`, its entry here, a method of the store, a route in `headrace.api.execution`, and the caller,
which sends it with `request(call, body)`.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.wire.calls.call import NOTHING, Call, calls_in
from headrace.wire.control.jobs import CompleteJob, Heartbeat, HeartbeatAnswer, JobRegistered, RegisterJob
from headrace.wire.control.triggers import (
    CleanupTriggers,
    DeclareProject,
    FailureRecorded,
    FetchWorkloads,
    LoadTriggers,
    ProjectDeclared,
    StageTriggers,
    StreamFailure,
    StreamFailureRecorded,
    TriggerFailure,
    TriggersLoaded,
    Workloads,
)
from headrace.wire.custody.backlog import BacklogPage, SettleBacklog
from headrace.wire.custody.copies import FindUncopied, RecordCopies, UncopiedPage
from headrace.wire.custody.events import BatchStored, EventBatch, LogHead, LogPosition
from headrace.wire.custody.receipts import (
    CountReceipts,
    FindLaneOffsets,
    LaneOffsets,
    ReceiptCount,
    SubscriberSetDefined,
    SubscriberSetDefinition,
)
from headrace.wire.custody.seeks import BeginSeek, FinishSeek, SeekBegun
from headrace.wire.pipelines.plans import (
    FindLeaders,
    FindPositions,
    FoundLeaders,
    OpenRuns,
    Plan,
    PlanPage,
    Positions,
    ScopeDeadLetters,
    ScopeState,
    SplitRun,
)
from headrace.wire.pipelines.runs import GetEventsBySeq, Redeliveries, RunReports
from headrace.wire.pipelines.scope_leases import AcquireScope, ScopeLease
from headrace.wire.secrets import ConnectionValue, VariableValue
from headrace.wire.task_runs import ClaimedRuns, ClaimRuns, DeferRun, FinishRun, StartRun, TaskRunResult, TaskRunStatus

REGISTER_JOB = Call(
    "POST", "/execution/jobs", RegisterJob, JobRegistered, "deployment key", "The same registration id gets the same job with a new token."
)
HEARTBEAT = Call(
    "POST", "/execution/jobs/{job_id}/heartbeat", Heartbeat, HeartbeatAnswer, "any job", "The last heartbeat counts; counters are totals."
)
COMPLETE_JOB = Call("POST", "/execution/jobs/{job_id}/complete", CompleteJob, NOTHING, "any job", "The first end counts.")

DECLARE_PROJECT = Call(
    "PUT", "/execution/projects/{name:path}", DeclareProject, ProjectDeclared, "any job", "The same declaration changes nothing."
)
STAGE_TRIGGERS = Call(
    "POST", "/execution/declarations", StageTriggers, NOTHING, "any job", "The same page of a declaration changes nothing."
)

LOAD_TRIGGERS = Call(
    "POST", "/execution/triggers/load", LoadTriggers, TriggersLoaded, "triggerer", "Leases that the job has are returned again."
)
GET_WORKLOADS = Call("POST", "/execution/triggers/workloads", FetchWorkloads, Workloads, "triggerer")
CLEAN_UP_TRIGGERS = Call(
    "POST", "/execution/triggers/cleanup", CleanupTriggers, NOTHING, "triggerer", "A lease that the job does not hold stays as it is."
)
REPORT_STREAM_FAILURE = Call(
    "POST",
    "/execution/triggers/failures",
    StreamFailure,
    StreamFailureRecorded,
    "triggerer",
    "The report id is stored; the same report gets the same restart time.",
)
REPORT_FAILURE = Call(
    "POST",
    "/execution/triggers/{trigger_id}/failure",
    TriggerFailure,
    FailureRecorded,
    "triggerer",
    "The failure's number is stored; the same number gets the same restart time.",
)
STORE_EVENTS = Call(
    "POST",
    "/execution/triggers/events",
    EventBatch,
    BatchStored,
    "triggerer",
    "Events, dead letters, spills and receipts that are stored are left as they are.",
)
GET_BACKLOG = Call("GET", "/execution/triggers/{trigger_id}/backlog", NOTHING, BacklogPage, "triggerer")
SETTLE_BACKLOG = Call(
    "POST",
    "/execution/triggers/{trigger_id}/backlog/settle",
    SettleBacklog,
    NOTHING,
    "triggerer",
    "A number that is not in the backlog changes nothing.",
)

DEFINE_SUBSCRIBER_SET = Call(
    "POST",
    "/execution/streams/subscriber-sets",
    SubscriberSetDefinition,
    SubscriberSetDefined,
    "triggerer",
    "The digest identifies the set, which is stored once.",
)
COUNT_RECEIPTS = Call("POST", "/execution/streams/receipt-count", CountReceipts, ReceiptCount, "triggerer")
GET_LANE_OFFSETS = Call("POST", "/execution/streams/offsets", FindLaneOffsets, LaneOffsets, "triggerer")
FIND_UNCOPIED = Call("POST", "/execution/streams/dead-letters", FindUncopied, UncopiedPage, "triggerer")
RECORD_COPIES = Call(
    "POST",
    "/execution/streams/dead-letter-copies",
    RecordCopies,
    NOTHING,
    "triggerer",
    "Copies up to a number that is passed change nothing.",
)
BEGIN_SEEK = Call(
    "POST",
    "/execution/streams/seeks/begin",
    BeginSeek,
    SeekBegun,
    "triggerer",
    "The first recorded positions of a lane count.",
)
FINISH_SEEK = Call("POST", "/execution/streams/seeks/finish", FinishSeek, NOTHING, "triggerer", "A lane that is moved is left as it is.")

GET_LOG_HEAD = Call("GET", "/execution/events/head", NOTHING, LogHead, "any job")
WAIT_FOR_EVENTS = Call("GET", "/execution/events/wait", NOTHING, LogPosition, "any job")
GET_EVENTS = Call("GET", "/execution/events", NOTHING, bytes, "any job")
GET_EVENTS_BY_SEQ = Call("POST", "/execution/events/batch-get", GetEventsBySeq, bytes, "any job")
FIND_LEADERS = Call("POST", "/execution/events/leaders", FindLeaders, FoundLeaders, "any job")
GET_REDELIVERIES = Call("GET", "/execution/redeliveries", NOTHING, Redeliveries, "any job")

ACQUIRE_SCOPE = Call(
    "POST", "/execution/scopes/{scope:path}/lease", AcquireScope, ScopeLease, "pipeline", "The job that holds the scope keeps its epoch."
)
STORE_PLAN = Call("POST", "/execution/scopes/{scope:path}/plans", Plan, NOTHING, "pipeline", "The plan of the last batch changes nothing.")
STORE_PLAN_PAGE = Call(
    "POST", "/execution/scopes/{scope:path}/plans/pages", PlanPage, NOTHING, "pipeline", "The same page replaces the stored one."
)
SPLIT_RUN = Call("POST", "/execution/scopes/{scope:path}/splits", SplitRun, NOTHING, "pipeline", "The same split of a run changes nothing.")
GET_POSITIONS = Call("POST", "/execution/scopes/{scope:path}/positions", FindPositions, Positions, "pipeline")
GET_SCOPE_STATE = Call("GET", "/execution/scopes/{scope:path}/state", NOTHING, ScopeState, "pipeline")
GET_SCOPE_DEAD_LETTERS = Call("GET", "/execution/scopes/{scope:path}/dead-letters", NOTHING, ScopeDeadLetters, "pipeline")
GET_OPEN_RUNS = Call("GET", "/execution/scopes/{scope:path}/runs", NOTHING, OpenRuns, "pipeline")
REPORT_RUNS = Call("POST", "/execution/runs", RunReports, NOTHING, "pipeline", "The last report of a run counts.")

START_TASK_RUN = Call("POST", "/execution/task-runs", StartRun, TaskRunStatus, "any job", "The same run id is the same run.")
CLAIM_TASK_RUNS = Call(
    "POST",
    "/execution/task-runs/claim",
    ClaimRuns,
    ClaimedRuns,
    "worker",
    "Runs that the worker does not name as running are returned again.",
)
DEFER_TASK_RUN = Call(
    "POST", "/execution/task-runs/{run_id}/defer", DeferRun, TaskRunStatus, "worker", "The epoch's first deferral counts."
)
FINISH_TASK_RUN = Call("POST", "/execution/task-runs/{run_id}/finish", FinishRun, TaskRunStatus, "worker", "The first end counts.")
GET_TASK_RUN_STATE = Call("GET", "/execution/task-runs/{run_id}/state", NOTHING, TaskRunStatus, "any job")
GET_TASK_RUN_RESULT = Call("GET", "/execution/task-runs/{run_id}/result", NOTHING, TaskRunResult, "any job")

GET_CONNECTION = Call("GET", "/execution/connections/{id}", NOTHING, ConnectionValue, "any job")
GET_VARIABLE = Call("GET", "/execution/variables/{key}", NOTHING, VariableValue, "any job")

EXECUTION_CALLS: Final[tuple[Call[Any, Any], ...]] = calls_in(globals())
