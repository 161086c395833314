"""What each version of the machine API changed, told backwards: how a version's models and answers become those of the one before.

The routes and the wire models are those of the newest version. To change the protocol: change them, put a new `Version` first in `VERSIONS`
(or, where the newest is not released yet, add to its changes), and declare here what the version before had.
"""

from __future__ import annotations

from typing import Literal

from cadwyn import (
    RequestInfo,
    ResponseInfo,
    Version,
    VersionBundle,
    VersionChange,
    convert_request_to_next_version_for,
    convert_response_to_previous_version_for,
    endpoint,
    schema,
)

from headrace.wire.base import API_VERSION, FIRST_API_VERSION
from headrace.wire.control.jobs import Heartbeat, HeartbeatAnswer, RegisterJob
from headrace.wire.control.streams import StreamReport
from headrace.wire.control.triggers import (
    CleanupTriggers,
    DeclaredPipeline,
    DeclaredTrigger,
    DeclareProject,
    LoadTriggers,
    ProjectDeclared,
    RunTrigger,
    TriggerFailure,
    TriggersLoaded,
    Workloads,
)
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import BatchStored, Cursor, DeadLetterItem, EventBatch
from headrace.wire.custody.receipts import Receipt
from headrace.wire.pipelines.runs import RunReport, RunReports

FAILURE = "/execution/triggers/{trigger_id}/failure"


class ReceiptsTravelWithEvents(VersionChange):
    """Receipts may be sent in the batch of events whose answers they tell of."""

    instructions_to_migrate_to_previous_version = (
        schema(EventBatch).field("receipts").didnt_exist,
        schema(BatchStored).field("receipts").didnt_exist,
    )

    @convert_response_to_previous_version_for(BatchStored)
    def without_receipts(response: ResponseInfo) -> None:
        response.body.pop("receipts")


class CrewsAreNamed(VersionChange):
    """A receipt may name a crew of triggers by its digest; marks are looked up lane by lane."""

    instructions_to_migrate_to_previous_version = (
        endpoint("/execution/streams/crews", ["POST"]).didnt_exist,
        endpoint("/execution/streams/marks", ["POST"]).didnt_exist,
        endpoint("/execution/streams/marks", ["GET"]).existed,
        schema(Receipt).field("crew").didnt_exist,
    )


class ScopesAreLeased(VersionChange):
    """A scope is granted to one job, which stores the plans of its batches and the outcomes of their runs."""

    instructions_to_migrate_to_previous_version = (
        endpoint("/execution/scopes/{scope:path}/lease", ["POST"]).didnt_exist,
        endpoint("/execution/scopes/{scope:path}/plans", ["POST"]).didnt_exist,
        endpoint("/execution/scopes/{scope:path}/plans/pages", ["POST"]).didnt_exist,
        endpoint("/execution/scopes/{scope:path}/splits", ["POST"]).didnt_exist,
        schema(DeclaredPipeline).field("on_failure").didnt_exist,
        endpoint("/execution/scopes/{scope:path}/letters", ["GET"]).didnt_exist,
        endpoint("/execution/events/leaders", ["POST"]).didnt_exist,
        endpoint("/execution/scopes/{scope:path}/positions", ["POST"]).didnt_exist,
        endpoint("/execution/scopes/{scope:path}/state", ["GET"]).didnt_exist,
        endpoint("/execution/scopes/{scope:path}/runs", ["GET"]).didnt_exist,
        endpoint("/execution/scopes/{scope:path}/cursor", ["GET"]).existed,
        endpoint("/execution/scopes/{scope:path}/cursor", ["POST"]).existed,
        schema(RunReport).field("number").didnt_exist,
        schema(RunReports).field("ended").didnt_exist,
    )


class StreamsHaveBooks(VersionChange):
    """A triggerer asks which event log it records a stream in, and how many receipts that has."""

    instructions_to_migrate_to_previous_version = (endpoint("/execution/streams/books", ["POST"]).didnt_exist,)


class StreamsFailOnce(VersionChange):
    """The failure of a stream is told once for all its watches."""

    instructions_to_migrate_to_previous_version = (endpoint("/execution/triggers/failures", ["POST"]).didnt_exist,)


class DeliveriesHaveIds(VersionChange):
    """A raw event without a position is told from its equals by a delivery id; a field of a wrong type has a kind of dead letter."""

    instructions_to_migrate_to_previous_version = (
        schema(SpillItem).field("delivery_id").didnt_exist,
        schema(DeadLetterItem).field("kind").had(type=Literal["malformed", "missing_field", "rejected", "failed", "unserialisable"]),
    )


class DeclarationsHavePages(VersionChange):
    """The triggers of a declaration may be sent in pages."""

    instructions_to_migrate_to_previous_version = (
        endpoint("/execution/declarations", ["POST"]).didnt_exist,
        schema(DeclareProject).field("staged").didnt_exist,
        schema(DeclareProject).field("count").didnt_exist,
        schema(DeclareProject).field("after").didnt_exist,
        schema(ProjectDeclared).field("done").didnt_exist,
        schema(ProjectDeclared).field("after").didnt_exist,
    )

    @convert_response_to_previous_version_for(ProjectDeclared)
    def done_at_once(response: ResponseInfo) -> None:
        for name in ("done", "after"):
            response.body.pop(name)


class LoadsAnswerDifferences(VersionChange):
    """A load may name the revision that its job knows, and is answered what is different; a heartbeat may be answered without leases."""

    instructions_to_migrate_to_previous_version = (
        schema(LoadTriggers).field("since").didnt_exist,
        schema(TriggersLoaded).field("gone").didnt_exist,
        schema(TriggersLoaded).field("revision").didnt_exist,
        schema(TriggersLoaded).field("whole").didnt_exist,
        schema(TriggersLoaded).field("more").didnt_exist,
        schema(Heartbeat).field("leases").didnt_exist,
    )

    @convert_response_to_previous_version_for(TriggersLoaded)
    def without_revision(response: ResponseInfo) -> None:
        for name in ("gone", "revision", "whole", "more"):
            response.body.pop(name)


class SinglesHaveCallsOfTheirOwn(VersionChange):
    """One event, or one raw event for a backlog, may be sent without a batch."""

    instructions_to_migrate_to_previous_version = (
        endpoint("/execution/triggers/{trigger_id}/event", ["POST"]).didnt_exist,
        endpoint("/execution/triggers/{trigger_id}/backlog", ["POST"]).didnt_exist,
    )


class LeasesAreGivenBack(VersionChange):
    """A lease may be held and revoked at once: it is given back, and another job gets it when the trigger has stopped.

    Before, whatever was among the leases was to run, and nobody said that it had stopped: such a client runs what it holds until it ends.
    """

    instructions_to_migrate_to_previous_version = (
        schema(HeartbeatAnswer).field("revoked").didnt_exist,
        schema(CleanupTriggers).field("epochs").didnt_exist,
        schema(LoadTriggers).field("capacity").didnt_have("le"),
    )

    @convert_response_to_previous_version_for(HeartbeatAnswer)
    def beats_without_revoked(response: ResponseInfo) -> None:
        response.body.pop("revoked")


class ScopesTellMore(VersionChange):
    """A scope tells what it still needs, what waits and which batch runs.

    The log tells its news, gives events by their seqs, and says what came later.
    """

    instructions_to_migrate_to_previous_version = (
        endpoint("/execution/events/news", ["GET"]).didnt_exist,
        endpoint("/execution/events/pick", ["POST"]).didnt_exist,
        endpoint("/execution/redeliveries", ["GET"]).didnt_exist,
        schema(Cursor).field("kept").didnt_exist,
        schema(Cursor).field("again").didnt_exist,
        schema(Cursor).field("report").didnt_exist,
        schema(Heartbeat).field("batch").didnt_exist,
        schema(RunReport).field("letter").didnt_exist,
    )


class FailuresAreJudged(VersionChange):
    """The answer to a failure says when to start the trigger again, or that it is parked; triggers have a priority."""

    instructions_to_migrate_to_previous_version = (
        schema(DeclaredTrigger).field("priority").didnt_exist,
        schema(DeclaredTrigger).field("max_restarts").didnt_exist,
        schema(DeclaredTrigger).field("queue").didnt_have("min_length", "max_length"),
        schema(DeclaredTrigger).field("classpath").didnt_have("pattern", "max_length"),
        schema(RunTrigger).field("parked").didnt_exist,
        schema(RunTrigger).field("start_after").didnt_exist,
        schema(RunTrigger).field("restarts").didnt_exist,
        schema(RunTrigger).field("trouble").didnt_exist,
        schema(RunTrigger).field("run_id").didnt_exist,
        schema(TriggerFailure).field("number").didnt_exist,
        schema(TriggerFailure).field("upstream").didnt_exist,
        schema(TriggerFailure).field("blocked").didnt_exist,
        endpoint(FAILURE, ["POST"], func_name="failure").didnt_exist,
        endpoint(FAILURE, ["POST"], func_name="failure_without_verdict").existed,
    )

    @convert_response_to_previous_version_for(Workloads)
    def to_run_at_once(response: ResponseInfo) -> None:
        for workload in response.body["workloads"]:
            for unknown in ("parked", "start_after", "restarts", "trouble", "run_id"):
                workload.pop(unknown)


class FailuresHaveATypeAsAllElseHas(VersionChange):
    """What a failure is, is its `type`, as it is for events and problems; it was its `kind`."""

    instructions_to_migrate_to_previous_version = (schema(TriggerFailure).field("type").had(name="kind"),)

    @convert_request_to_next_version_for(TriggerFailure)
    def kind_is_type(request: RequestInfo) -> None:
        request.body["type"] = request.body.pop("kind")


class JobsSayMore(VersionChange):
    """A job may say which program it runs, where its logs are served, what blocks it and what it left behind, and may be a worker."""

    instructions_to_migrate_to_previous_version = (
        schema(RegisterJob).field("log_url").didnt_exist,
        schema(RegisterJob).field("version").didnt_exist,
        schema(Heartbeat).field("blocked").didnt_exist,
        schema(StreamReport).field("left_behind").didnt_exist,
        schema(StreamReport).field("oldest_lane").didnt_exist,
        schema(StreamReport).field("lanes_retrying").didnt_exist,
        schema(StreamReport).field("retrying").didnt_exist,
        schema(RegisterJob).field("kind").had(type=Literal["triggerer", "pipeline"]),
    )


class SecretsAreServed(VersionChange):
    """A job may ask for connections and variables."""

    instructions_to_migrate_to_previous_version = (
        endpoint("/execution/connections/{id}", ["GET"]).didnt_exist,
        endpoint("/execution/variables/{key}", ["GET"]).didnt_exist,
    )


class TaskRunsExist(VersionChange):
    """There are task runs, which workers claim and which may wait for a trigger."""

    instructions_to_migrate_to_previous_version = (
        endpoint("/execution/task-runs", ["POST"]).didnt_exist,
        endpoint("/execution/task-runs/claim", ["POST"]).didnt_exist,
        endpoint("/execution/task-runs/{run_id}/defer", ["POST"]).didnt_exist,
        endpoint("/execution/task-runs/{run_id}/finish", ["POST"]).didnt_exist,
        endpoint("/execution/runs/{run_id}/state", ["GET"]).didnt_exist,
        endpoint("/execution/runs/{run_id}/result", ["GET"]).didnt_exist,
    )


class TokensAreRefreshed(VersionChange):
    """A job's token lives for minutes, and a heartbeat brings the next one. An older client gets one that lives as long as its job."""

    instructions_to_migrate_to_previous_version = (schema(HeartbeatAnswer).field("token").didnt_exist,)

    @convert_response_to_previous_version_for(HeartbeatAnswer)
    def beats_without_token(response: ResponseInfo) -> None:
        response.body.pop("token")


VERSIONS = VersionBundle(
    Version(
        API_VERSION,
        ReceiptsTravelWithEvents,
        CrewsAreNamed,
        ScopesAreLeased,
        StreamsHaveBooks,
        StreamsFailOnce,
        DeclarationsHavePages,
        LoadsAnswerDifferences,
        ScopesTellMore,
        DeliveriesHaveIds,
        SinglesHaveCallsOfTheirOwn,
        LeasesAreGivenBack,
        FailuresAreJudged,
        FailuresHaveATypeAsAllElseHas,
        JobsSayMore,
        TaskRunsExist,
        SecretsAreServed,
        TokensAreRefreshed,
    ),
    Version(FIRST_API_VERSION),
)
"""The versions of the machine API, the newest first."""
