"""The admin API: what happens here and what happened, read-only, for the page, the command line and scripts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse

from headrace.api.admin.live_status import VERSION, LiveStatus
from headrace.api.admin.metrics import CONTENT_TYPE
from headrace.api.auth.authentication import admin
from headrace.api.http.problems import Refusal
from headrace.errors import ResourceError
from headrace.store import Store
from headrace.store.control.balancing import UnassignedTriggers
from headrace.store.queries.events import event_detail, event_page, events_of_run
from headrace.store.queries.pipeline_runs import last_runs, run_called
from headrace.store.queries.status import schema_revision
from headrace.store.queries.streams import stream_page
from headrace.store.queries.triggers import trigger_page
from headrace.wire.custody.receipts import LogMark, StreamAdopted
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.status import status as wire

NOT_KEPT = {"Cache-Control": "no-store"}
EVENT_STREAM = {**NOT_KEPT, "X-Accel-Buffering": "no"}
SEQ_RANGE = 2**63 - 1

Limit = Annotated[int, Query(ge=1, le=1000, description="At most this many.")]
Seq = Annotated[int | None, Query(ge=0, le=SEQ_RANGE)]


def router_for(store: Store, live: LiveStatus | None = None) -> APIRouter:
    """Return the admin API over `store`; `live` is the status that is shared with every other view of it."""
    router = APIRouter(tags=["admin"])
    _add_status(router, live or LiveStatus(store))
    _add_lists(router, store)
    _add_details(router, store)
    _add_health(router, store)
    return router


def _add_status(router: APIRouter, live: LiveStatus) -> None:
    @router.get("/api/v1/status")
    async def status(response: Response) -> wire.Status:
        """Return all that the page shows, as it is now."""
        response.headers.update(NOT_KEPT)
        return await live.status()

    @router.get("/api/v1/stream", response_class=StreamingResponse, responses={200: _text("text/event-stream")})
    async def stream() -> StreamingResponse:
        """Send the status as server-sent events: at once, then on each change, at most twice a second."""
        return StreamingResponse(live.frames(), media_type="text/event-stream", headers=EVENT_STREAM)

    @router.get("/metrics", response_class=Response, responses={200: _text(CONTENT_TYPE)})
    async def metrics() -> Response:
        """Return the counters for Prometheus."""
        return Response(await live.metrics(), media_type=CONTENT_TYPE, headers=NOT_KEPT)


def _add_lists(router: APIRouter, store: Store) -> None:
    unserved = UnassignedTriggers()

    @router.get("/api/v1/events")
    def events(
        after: Seq = None, before: Seq = None, limit: Limit = 100, type: str | None = None, subject: str | None = None
    ) -> wire.EventPage:
        """Return events with after < seq < before, the newest first. With `after` alone, return later events, the oldest first."""
        with store.reading() as connection:
            return event_page(connection, after=after, before=before, limit=limit, type=type, subject=subject)

    @router.get("/api/v1/triggers")
    def triggers(after: Seq = None, limit: Limit = 100) -> wire.TriggerList:
        """Return registered triggers, by name; `after` is where the last page ended."""
        with store.reading() as connection:
            return trigger_page(connection, store.now(), unserved(connection), after=after, limit=limit)

    @router.get("/api/v1/streams")
    def streams(after: str | None = None, limit: Limit = 100) -> wire.StreamList:
        """Return shared streams with their lanes, by name, as their jobs last reported them; `after` is where the last page ended."""
        with store.reading() as connection:
            return stream_page(connection, after=after, limit=limit)

    @router.post("/api/v1/streams/adopt", dependencies=[Depends(admin)])
    def adopt(mark: LogMark) -> StreamAdopted:
        """Go on with a stream whose upstream keeps this mark of another event log, or of one that was lost with its database."""
        return store.stream_logs.adopt(mark)

    @router.get("/api/v1/runs")
    def runs(limit: Limit = 100, pipeline: str | None = None) -> wire.RunList:
        """Return runs, the newest first, of one pipeline where it is given."""
        with store.reading() as connection:
            return wire.RunList(runs=last_runs(connection, limit=limit, pipeline=pipeline))

    @router.get("/api/v1/runs/{run_id:path}/events")
    def events_of(run_id: str, before: Seq = None, limit: Limit = 100) -> wire.EventPage:
        """Return the events that a run took, the newest first, as far as the log still has them."""
        with store.reading() as connection:
            found = events_of_run(connection, run_id, before=before, limit=limit)
        if found is None:
            raise _no_run(run_id)
        return found


def _add_details(router: APIRouter, store: Store) -> None:
    @router.get("/api/v1/events/{seq}")
    def event(seq: int) -> wire.EventDetail:
        """Return one event with its payload, and the runs that took it."""
        with store.reading() as connection:
            found = event_detail(connection, seq) if 0 <= seq <= SEQ_RANGE else None
        if found is None:
            raise Refusal(404, "not-found", f"No event has the seq {seq}.")
        return found

    @router.get("/api/v1/runs/{run_id:path}")
    def run(run_id: str) -> RunReport:
        """Return one run of a pipeline, with the seqs of its events."""
        with store.reading() as connection:
            found = run_called(connection, run_id)
        if found is None:
            raise _no_run(run_id)
        return found


def _no_run(run_id: str) -> Refusal:
    return Refusal(404, "not-found", f"No run of a pipeline has the id {run_id}.", hint="For the newest: headrace runs --json")


def _add_health(router: APIRouter, store: Store) -> None:
    @router.get("/healthz", responses={503: {"model": wire.Health}})
    def healthz(response: Response) -> wire.Health:
        """Answer 200 while the database can be read, 503 when it cannot; with the revision of its schema."""
        response.headers.update(NOT_KEPT)
        try:
            with store.reading() as connection:
                revision = schema_revision(connection)
        except ResourceError as error:
            response.status_code = 503
            return wire.Health(status="failing", database=str(error), schema_revision=None, version=VERSION)
        return wire.Health(status="ok", database="reachable", schema_revision=revision, version=VERSION)


def _text(media_type: str) -> dict[str, Any]:
    """Return what OpenAPI says of an answer that is text of this type."""
    return {"description": "Text", "content": {media_type: {"schema": {"type": "string"}}}}
