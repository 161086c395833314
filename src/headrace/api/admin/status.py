"""Admin routes of the status, events, triggers, streams, pipeline runs, metrics and health."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from headrace.api.admin.live_status import VERSION, LiveStatus
from headrace.api.admin.metrics import CONTENT_TYPE
from headrace.api.auth.authentication import Operator
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.routing import route
from headrace.core.matching.payloads import MAX_PATTERN_CHARS, PayloadPattern, parse_pattern_text
from headrace.errors import ProjectError, ResourceError
from headrace.store.control.balancing import UnassignedTriggers
from headrace.store.custody.seeks import seek_list
from headrace.store.queries.events import event_detail, event_page, events_of_run
from headrace.store.queries.pipeline_runs import last_runs, run_called
from headrace.store.queries.status import schema_revision
from headrace.store.queries.streams import stream_page, upstream_page
from headrace.store.queries.triggers import trigger_page
from headrace.wire.calls import admin as calls
from headrace.wire.custody.receipts import LogMark, StreamAdopted
from headrace.wire.custody.seeks import PlanSeek, SeekList
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.status import status as wire
from headrace.wire.status.upstreams import UpstreamList

NO_STORE = {"Cache-Control": "no-store"}
EVENT_STREAM = {**NO_STORE, "X-Accel-Buffering": "no"}
SEQ_RANGE = 2**63 - 1

Limit = Annotated[int, Query(ge=1, le=1000, description="At most this many.")]
Seq = Annotated[int | None, Query(ge=0, le=SEQ_RANGE)]
Match = Annotated[
    str | None,
    Query(description=f"Only events whose payload matches this event pattern: JSON of at most {MAX_PATTERN_CHARS:,} characters."),
]


async def _live(request: Request) -> LiveStatus:
    """Return the status that all views of the app share."""
    live: LiveStatus = request.app.state.live
    return live


async def _unassigned(request: Request) -> UnassignedTriggers:
    """Return the cache of the app's triggers that no triggerer can run."""
    unassigned: UnassignedTriggers = request.app.state.unassigned
    return unassigned


LiveOf = Annotated[LiveStatus, Depends(_live)]
UnassignedOf = Annotated[UnassignedTriggers, Depends(_unassigned)]

router = APIRouter(tags=["admin"])


def _text(media_type: str) -> dict[str, Any]:
    """Return the OpenAPI description of a text response of this type."""
    return {"description": "Text", "content": {media_type: {"schema": {"type": "string"}}}}


@route(router, calls.GET_STATUS)
async def status(response: Response, live: LiveOf) -> wire.Status:
    """Return the current status, as the status page shows it."""
    response.headers.update(NO_STORE)
    return await live.status()


@route(router, calls.FOLLOW_STATUS, response_class=StreamingResponse, responses={200: _text("text/event-stream")})
async def stream(live: LiveOf) -> StreamingResponse:
    """Send the status as server-sent events: first the current one, then each change, at most two a second."""
    return StreamingResponse(live.frames(), media_type="text/event-stream", headers=EVENT_STREAM)


@route(router, calls.GET_METRICS, response_class=Response, responses={200: _text(CONTENT_TYPE)})
async def metrics(live: LiveOf) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(await live.metrics(), media_type=CONTENT_TYPE, headers=NO_STORE)


@route(router, calls.LIST_EVENTS)
def events(
    store: StoreOf,
    after: Seq = None,
    before: Seq = None,
    limit: Limit = 100,
    type: str | None = None,
    subject: str | None = None,
    match: Match = None,
) -> wire.EventPage:
    """Return events with after < seq < before, the newest first. With `after` alone, return later events, the oldest first.

    With `type`, `subject` or `match`, a page covers a limited part of the log, so an empty page is not the end. The last page has no
    `before`.
    """
    pattern = None if match is None else _pattern(match)
    with store.reading() as connection:
        return event_page(connection, after=after, before=before, limit=limit, type=type, subject=subject, pattern=pattern)


@route(router, calls.LIST_TRIGGERS)
def triggers(unassigned: UnassignedOf, store: StoreOf, after: Seq = None, limit: Limit = 100) -> wire.TriggerList:
    """Return registered triggers by name. `after` is that of the previous page."""
    with store.reading() as connection:
        return trigger_page(connection, store.now(), unassigned(connection), after=after, limit=limit)


@route(router, calls.LIST_STREAMS)
def streams(store: StoreOf, after: str | None = None, limit: Limit = 100) -> wire.StreamList:
    """Return shared streams with their lanes by name, as their jobs last reported them. `after` is that of the previous page."""
    with store.reading() as connection:
        return stream_page(connection, after=after, limit=limit)


@route(router, calls.LIST_RUNS)
def runs(store: StoreOf, limit: Limit = 100, pipeline: str | None = None) -> wire.RunList:
    """Return pipeline runs, the newest first; those of one pipeline if it is given."""
    with store.reading() as connection:
        return wire.RunList(runs=last_runs(connection, limit=limit, pipeline=pipeline))


@route(router, calls.LIST_EVENTS_OF_RUN)
def events_of(run_id: str, store: StoreOf, before: Seq = None, limit: Limit = 100) -> wire.EventPage:
    """Return the events of a pipeline run that the log still has, the newest first."""
    with store.reading() as connection:
        page = events_of_run(connection, run_id, before=before, limit=limit)
    if page is None:
        raise _no_run(run_id)
    return page


@route(router, calls.LIST_UPSTREAMS)
def upstreams(unassigned: UnassignedOf, store: StoreOf, after: str | None = None, limit: Limit = 100) -> UpstreamList:
    """Return the upstreams that projects declare by name, with their readers and their lag. `after` is that of the previous page."""
    with store.reading() as connection:
        return upstream_page(connection, unassigned(connection), silent=store.now() - store.liveness.threshold, after=after, limit=limit)


@route(router, calls.PLAN_SEEK)
def plan_seek(plan: PlanSeek, operator: Operator, store: StoreOf) -> SeekList:
    """Plan to move lanes of an upstream. The triggerer that opens its stream next moves them."""
    who = plan.by or "unnamed" if operator is None else f"{operator} ({plan.by})" if plan.by else operator
    return store.stream_seeks.plan(plan, who)


@route(router, calls.LIST_SEEKS)
def seeks(store: StoreOf, plan: str | None = None, limit: Limit = 100) -> SeekList:
    """Return the seeks of all upstreams, or of one plan, the newest first."""
    with store.reading() as connection:
        return seek_list(connection, store.now(), limit=limit, plan=plan)


@route(router, calls.ADOPT_STREAM)
def adopt(mark: LogMark, store: StoreOf) -> StreamAdopted:
    """Continue a stream whose upstream has this mark of another event log, or of one that was lost with its database."""
    return store.stream_logs.adopt(mark)


@route(router, calls.GET_EVENT)
def event(seq: int, store: StoreOf) -> wire.EventDetail:
    """Return one event with its payload, its pipeline runs, its leader, and its position, mark or wait in each scope."""
    with store.reading() as connection:
        detail = event_detail(connection, seq, store.now()) if 0 <= seq <= SEQ_RANGE else None
    if detail is None:
        raise Refusal(404, "not-found", f"No event has the seq {seq}.")
    return detail


@route(router, calls.GET_RUN)
def run(run_id: str, store: StoreOf) -> RunReport:
    """Return one pipeline run with the seqs of its events."""
    with store.reading() as connection:
        detail = run_called(connection, run_id)
    if detail is None:
        raise _no_run(run_id)
    return detail


def _pattern(match: str) -> PayloadPattern:
    try:
        return PayloadPattern(parse_pattern_text(match))
    except ProjectError as error:
        raise Refusal(422, "invalid", str(error), hint=error.hint) from error


def _no_run(run_id: str) -> Refusal:
    return Refusal(404, "not-found", f"No run of a pipeline has the id {run_id}.", hint="For the newest: headrace runs --json")


@route(router, calls.GET_HEALTH, responses={503: {"model": wire.Health}})
def healthz(response: Response, store: StoreOf) -> wire.Health:
    """Return 200 with the schema revision of the database, or 503 if the database cannot be read."""
    response.headers.update(NO_STORE)
    try:
        with store.reading() as connection:
            revision = schema_revision(connection)
    except ResourceError as error:
        response.status_code = 503
        return wire.Health(status="failing", database=str(error), schema_revision=None, version=VERSION)
    return wire.Health(status="ok", database="reachable", schema_revision=revision, version=VERSION)
