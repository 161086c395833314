"""The calls of the admin API, for operators, the status page and the command line."""

from __future__ import annotations

from typing import Any, Final

from headrace.wire.calls.call import NOTHING, Call, calls_in
from headrace.wire.custody.dead_letters import DeadLetterActionResult, DeadLetterActions, DeadLetterSelection
from headrace.wire.custody.pipeline_dead_letters import (
    PipelineDeadLetter,
    PipelineDeadLetterActionResult,
    PipelineDeadLetterList,
    PipelineDeadLetterSelection,
)
from headrace.wire.custody.receipts import Audit, LogMark, StreamAdopted
from headrace.wire.custody.seeks import PlanSeek, SeekList
from headrace.wire.pipelines.plans import OpenRuns, ScopeState
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.pipelines.scope_audit import LedgerDeadLetters, LedgerFirings, LedgerRuns, ScopeLedger
from headrace.wire.pipelines.scopes import ResetScope, ScopeList, ScopeReset, WaitPage
from headrace.wire.secrets import (
    ConnectionList,
    ConnectionSummary,
    CreatedToken,
    CreateToken,
    RotateSecrets,
    SecretsRotated,
    SetConnection,
    SetVariable,
    TokenList,
    VariableList,
    VariableSummary,
)
from headrace.wire.status.status import (
    DeadLetterDetail,
    DeadLetterPage,
    EventDetail,
    EventPage,
    Health,
    RunList,
    Status,
    StreamList,
    TriggerList,
)
from headrace.wire.status.triggerers import BacklogDropped, FiringExplanation, SetDesiredState, TriggerDetail, TriggererList
from headrace.wire.status.upstreams import UpstreamList
from headrace.wire.task_runs import StartTask, TaskRunDetail, TaskRunList, TaskRunStatus
from headrace.wire.webhooks import DeliveryList, RedriveResult, SetWebhook, SetWebhookState, WebhookList

GET_HEALTH = Call("GET", "/healthz", NOTHING, Health, "anyone")
GET_METRICS = Call("GET", "/metrics", NOTHING, bytes, "reader")
GET_STATUS = Call("GET", "/api/v1/status", NOTHING, Status, "reader")
FOLLOW_STATUS = Call("GET", "/api/v1/stream", NOTHING, bytes, "reader")

LIST_EVENTS = Call("GET", "/api/v1/events", NOTHING, EventPage, "reader")
GET_EVENT = Call("GET", "/api/v1/events/{seq}", NOTHING, EventDetail, "reader")

LIST_TRIGGERS = Call("GET", "/api/v1/triggers", NOTHING, TriggerList, "reader")
GET_TRIGGER = Call("GET", "/api/v1/triggers/{trigger_id}", NOTHING, TriggerDetail, "reader")
RESUME_TRIGGER = Call(
    "POST", "/api/v1/triggers/{trigger_id}/resume", NOTHING, NOTHING, "admin", "A trigger that runs is not started again."
)
DROP_BACKLOG = Call(
    "POST", "/api/v1/triggers/{trigger_id}/backlog/drop", NOTHING, BacklogDropped, "admin", "The backlog is empty then: 0 entries."
)
EXPLAIN_FIRING = Call("GET", "/api/v1/firings/explanation", NOTHING, FiringExplanation, "reader")
LIST_STREAMS = Call("GET", "/api/v1/streams", NOTHING, StreamList, "reader")
LIST_UPSTREAMS = Call("GET", "/api/v1/upstreams", NOTHING, UpstreamList, "reader")
PLAN_SEEK = Call("POST", "/api/v1/upstreams/seeks", PlanSeek, SeekList, "admin", "The same plan is one plan.")
LIST_SEEKS = Call("GET", "/api/v1/upstreams/seeks", NOTHING, SeekList, "reader")
ADOPT_STREAM = Call("POST", "/api/v1/streams/adopt", LogMark, StreamAdopted, "admin", "The same mark changes nothing.")
GET_AUDIT = Call("GET", "/api/v1/audit", NOTHING, Audit, "reader")
LIST_TRIGGERERS = Call("GET", "/api/v1/triggerers", NOTHING, TriggererList, "reader")
SET_DESIRED_STATE = Call(
    "POST",
    "/api/v1/triggerers/{job_id}/desired-state",
    SetDesiredState,
    NOTHING,
    "admin",
    "The last desired state counts.",
)

LIST_DEAD_LETTERS = Call("GET", "/api/v1/dead-letters", NOTHING, DeadLetterPage, "reader")
GET_DEAD_LETTER = Call("GET", "/api/v1/dead-letters/{id:path}", NOTHING, DeadLetterDetail, "reader")
REDRIVE_DEAD_LETTERS = Call(
    "POST",
    "/api/v1/dead-letters/redrive",
    DeadLetterSelection,
    DeadLetterActionResult,
    "admin",
    "A dead letter that is redriven is left as it is.",
)
DISCARD_DEAD_LETTERS = Call(
    "POST",
    "/api/v1/dead-letters/discard",
    DeadLetterSelection,
    DeadLetterActionResult,
    "admin",
    "A dead letter that is discarded is left as it is.",
)
LIST_DEAD_LETTER_ACTIONS = Call("GET", "/api/v1/dead-letter-actions", NOTHING, DeadLetterActions, "reader")
LIST_PIPELINE_DEAD_LETTERS = Call("GET", "/api/v1/pipeline-dead-letters", NOTHING, PipelineDeadLetterList, "reader")
GET_PIPELINE_DEAD_LETTER = Call("GET", "/api/v1/pipeline-dead-letters/{id:path}", NOTHING, PipelineDeadLetter, "reader")
ACT_ON_PIPELINE_DEAD_LETTERS = Call(
    "POST",
    "/api/v1/pipeline-dead-letters/{action}",
    PipelineDeadLetterSelection,
    PipelineDeadLetterActionResult,
    "admin",
    "A dead letter that is not open is left as it is.",
)

LIST_SCOPES = Call("GET", "/api/v1/scopes", NOTHING, ScopeList, "reader")
REMOVE_SCOPE = Call("DELETE", "/api/v1/scopes/{scope:path}", NOTHING, NOTHING, "admin", "A missing scope is `not-found`.")
RESET_SCOPE = Call(
    "POST",
    "/api/v1/scopes/{scope:path}/reset",
    ResetScope,
    ScopeReset,
    "admin",
    "Each reset begins another incarnation of the scope.",
    repeatable=False,
)
LIST_WAITING_EVENTS = Call("GET", "/api/v1/scopes/{scope:path}/waiting", NOTHING, WaitPage, "reader")
GET_SCOPE_LEDGER = Call("GET", "/api/v1/scopes/{scope:path}/ledger", NOTHING, ScopeLedger, "reader")
GET_LEDGER_STATE = Call("GET", "/api/v1/scopes/{scope:path}/ledger/state", NOTHING, ScopeState, "reader")
GET_LEDGER_OPEN_RUNS = Call("GET", "/api/v1/scopes/{scope:path}/ledger/open-runs", NOTHING, OpenRuns, "reader")
GET_LEDGER_RUNS = Call("GET", "/api/v1/scopes/{scope:path}/ledger/runs", NOTHING, LedgerRuns, "reader")
GET_LEDGER_DEAD_LETTERS = Call("GET", "/api/v1/scopes/{scope:path}/ledger/dead-letters", NOTHING, LedgerDeadLetters, "reader")
GET_LEDGER_FIRINGS = Call("GET", "/api/v1/scopes/{scope:path}/ledger/firings", NOTHING, LedgerFirings, "reader")

LIST_RUNS = Call("GET", "/api/v1/runs", NOTHING, RunList, "reader")
GET_RUN = Call("GET", "/api/v1/runs/{run_id:path}", NOTHING, RunReport, "reader")
LIST_EVENTS_OF_RUN = Call("GET", "/api/v1/runs/{run_id:path}/events", NOTHING, EventPage, "reader")

LIST_TASK_RUNS = Call("GET", "/api/v1/task-runs", NOTHING, TaskRunList, "reader")
GET_TASK_RUN = Call("GET", "/api/v1/task-runs/{run_id}", NOTHING, TaskRunDetail, "reader")
START_TASK_RUN = Call("POST", "/api/v1/task-runs", StartTask, TaskRunStatus, "admin", "The same run id is the same run.")
CANCEL_TASK_RUN = Call("POST", "/api/v1/task-runs/{run_id}/cancel", NOTHING, TaskRunStatus, "admin", "A run that ended is left as it is.")

GET_TRIGGER_LOG = Call("GET", "/api/v1/logs/triggers/{called}", NOTHING, bytes, "reader")
GET_RUN_LOG = Call("GET", "/api/v1/logs/runs/{called:path}", NOTHING, bytes, "reader")

LIST_CONNECTIONS = Call("GET", "/api/v1/connections", NOTHING, ConnectionList, "reader")
GET_CONNECTION = Call("GET", "/api/v1/connections/{id}", NOTHING, ConnectionSummary, "reader")
SET_CONNECTION = Call("PUT", "/api/v1/connections/{id}", SetConnection, NOTHING, "admin", "The connection is replaced by itself.")
REMOVE_CONNECTION = Call("DELETE", "/api/v1/connections/{id}", NOTHING, NOTHING, "admin", "A missing connection is `not-found`.")
LIST_VARIABLES = Call("GET", "/api/v1/variables", NOTHING, VariableList, "reader")
GET_VARIABLE = Call("GET", "/api/v1/variables/{key}", NOTHING, VariableSummary, "reader")
SET_VARIABLE = Call("PUT", "/api/v1/variables/{key}", SetVariable, NOTHING, "admin", "The variable is replaced by itself.")
REMOVE_VARIABLE = Call("DELETE", "/api/v1/variables/{key}", NOTHING, NOTHING, "admin", "A missing variable is `not-found`.")
ROTATE_SECRETS = Call(
    "POST", "/api/v1/secrets/rotate", RotateSecrets, SecretsRotated, "admin", "Secrets encrypted with the first key are left as they are."
)

LIST_TOKENS = Call("GET", "/api/v1/tokens", NOTHING, TokenList, "deployment key")
CREATE_TOKEN = Call(
    "POST", "/api/v1/tokens", CreateToken, CreatedToken, "deployment key", "Each request creates another token.", repeatable=False
)
REVOKE_TOKEN = Call("DELETE", "/api/v1/tokens/{id}", NOTHING, NOTHING, "deployment key", "A missing token is `not-found`.")

LIST_WEBHOOKS = Call("GET", "/api/v1/webhooks", NOTHING, WebhookList, "reader")
SET_WEBHOOK = Call("PUT", "/api/v1/webhooks/{name}", SetWebhook, NOTHING, "admin", "The webhook is replaced by itself.")
SET_WEBHOOK_STATE = Call("POST", "/api/v1/webhooks/{name}/state", SetWebhookState, NOTHING, "admin", "The same state changes nothing.")
REMOVE_WEBHOOK = Call("DELETE", "/api/v1/webhooks/{name}", NOTHING, NOTHING, "admin", "A missing webhook is `not-found`.")
REDRIVE_WEBHOOK = Call(
    "POST", "/api/v1/webhooks/{name}/redrive", NOTHING, RedriveResult, "admin", "Events that are not dead are left as they are."
)
LIST_DELIVERIES = Call("GET", "/api/v1/webhooks/{name}/deliveries", NOTHING, DeliveryList, "reader")

ADMIN_CALLS: Final[tuple[Call[Any, Any], ...]] = calls_in(globals())
