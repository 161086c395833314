"""Routes of scopes and of pipeline runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from headrace.api.auth.authentication import Pipeline
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireResponse, WireRoute
from headrace.api.routing import route
from headrace.store.db.meta import log_id
from headrace.wire.calls import execution as calls
from headrace.wire.pipelines.plans import FindPositions, Plan, PlanPage, ScopeDeadLetters, SplitRun
from headrace.wire.pipelines.runs import RunReports
from headrace.wire.pipelines.scope_leases import AcquireScope, ScopeLease

MAX_NUMBER = 2**63 - 1

Number = Annotated[int, Query(ge=0, le=MAX_NUMBER)]

router = APIRouter(tags=["scopes"], route_class=WireRoute)


@route(router, calls.ACQUIRE_SCOPE)
def lease(scope: str, acquire: AcquireScope, store: StoreOf, caller: Pipeline) -> ScopeLease:
    """Lease the scope to this job, which fences every other driver. A new scope begins at the event `begin`."""
    granted = store.scope_leases.acquire(caller.job_id, scope, acquire.begin)
    return ScopeLease(scope=scope, log=log_id(store.instance), **granted._asdict())


@route(router, calls.STORE_PLAN)
def plan(scope: str, planned: Plan, store: StoreOf, caller: Pipeline) -> None:
    """Store the plan of the scope's next batch."""
    store.plans.store(caller.job_id, scope, planned)


@route(router, calls.STORE_PLAN_PAGE)
def plan_page(scope: str, page: PlanPage, store: StoreOf, caller: Pipeline) -> None:
    """Store a page of the plan of the scope's next batch. It has no effect before the plan is stored."""
    store.plans.keep_page(caller.job_id, scope, page)


@route(router, calls.SPLIT_RUN)
def split(scope: str, split: SplitRun, store: StoreOf, caller: Pipeline) -> None:
    """Replace an open run by parts of it."""
    store.plans.split(caller.job_id, scope, split)


@route(router, calls.GET_POSITIONS)
def positions(scope: str, body: FindPositions, store: StoreOf, caller: Pipeline) -> Response:
    """Return the positions of events that the scope has ordered, about 8 MiB. Request the events after `to` until `to` is null."""
    return WireResponse(store.plans.positions(caller.job_id, scope, body.seqs))


@route(router, calls.GET_SCOPE_STATE)
def state(scope: str, store: StoreOf, caller: Pipeline, after: str = "") -> Response:
    """Return the state of the scope by key, about 8 MiB. Request the next page with `after` until it is null."""
    return WireResponse(store.plans.state(caller.job_id, scope, after))


@route(router, calls.GET_SCOPE_DEAD_LETTERS)
def dead_letters(scope: str, pipeline: str, store: StoreOf, caller: Pipeline, after: str = "") -> ScopeDeadLetters:
    """Return the dead letters of a pipeline that are neither settled nor discarded. Request the next page with `after` until it is null."""
    return store.plans.dead_letters(caller.job_id, scope, pipeline, after)


@route(router, calls.GET_OPEN_RUNS)
def open_runs(scope: str, store: StoreOf, caller: Pipeline, batch: Number = 0, number: Number = 0) -> Response:
    """Return the open runs after (batch, number), about 8 MiB. An empty page is the end."""
    return WireResponse(store.plans.open_runs(caller.job_id, scope, batch, number))


@route(router, calls.REPORT_RUNS)
def report(reports: RunReports, store: StoreOf, caller: Pipeline) -> None:
    """Store the last report of each run, and the duration of the batch that ended."""
    store.runs.report(caller.job_id, reports.runs, reports.ended)
