"""POST /execution/scopes/{scope}/lease, …/plans, …/splits and …/positions; GET …/state and …/runs; POST /execution/runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from headrace.api.auth.authentication import Pipeline
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireResponse, WireRoute
from headrace.store.db.meta import log_id
from headrace.wire.pipelines.plans import FindPositions, OpenRuns, Plan, PlanPage, Positions, ScopeLetters, ScopeState, SplitRun
from headrace.wire.pipelines.runs import RunReports
from headrace.wire.pipelines.scope_leases import AcquireScope, ScopeLease

MAX_NUMBER = 2**63 - 1

Number = Annotated[int, Query(ge=0, le=MAX_NUMBER)]

router = APIRouter(prefix="/execution", tags=["scopes"], route_class=WireRoute)


@router.post("/scopes/{scope:path}/lease")
def lease(scope: str, acquire: AcquireScope, store: StoreOf, caller: Pipeline) -> ScopeLease:
    """Grant the scope to this job: from then on no other driver's requests count. A scope that is new begins where the body says."""
    granted = store.scope_leases.acquire(caller.job_id, scope, acquire.begin)
    return ScopeLease(scope=scope, log=log_id(store.instance), **granted._asdict())


@router.post("/scopes/{scope:path}/plans", status_code=204)
def plan(scope: str, planned: Plan, store: StoreOf, caller: Pipeline) -> None:
    """Store the plan of the scope's next batch. The last plan may be sent again."""
    store.plans.store(caller.job_id, scope, planned)


@router.post("/scopes/{scope:path}/plans/pages", status_code=204)
def plan_page(scope: str, page: PlanPage, store: StoreOf, caller: Pipeline) -> None:
    """Keep a page of the plan of the scope's next batch until that is stored. The page may be sent again."""
    store.plans.keep_page(caller.job_id, scope, page)


@router.post("/scopes/{scope:path}/splits", status_code=204)
def split(scope: str, split: SplitRun, store: StoreOf, caller: Pipeline) -> None:
    """Replace an open run by parts of it. The request may be sent again."""
    store.plans.split(caller.job_id, scope, split)


@router.post("/scopes/{scope:path}/positions", response_model=Positions)
def positions(scope: str, wanted: FindPositions, store: StoreOf, caller: Pipeline) -> Response:
    """Return the stored positions of events that the scope has ordered, about 8 MiB; ask for events after `to` until that is null."""
    return WireResponse(store.plans.positions(caller.job_id, scope, wanted.seqs))


@router.get("/scopes/{scope:path}/state", response_model=ScopeState)
def state(scope: str, store: StoreOf, caller: Pipeline, after: str = "") -> Response:
    """Return the scope's state by key, at most about 8 MiB; ask for what comes `after` until that is null."""
    return WireResponse(store.plans.state(caller.job_id, scope, after))


@router.get("/scopes/{scope:path}/letters")
def letters(scope: str, pipeline: str, store: StoreOf, caller: Pipeline, after: str = "") -> ScopeLetters:
    """Return a pipeline's dead letters that are neither settled nor discarded; ask for those `after` until that is null."""
    return store.plans.letters(caller.job_id, scope, pipeline, after)


@router.get("/scopes/{scope:path}/runs", response_model=OpenRuns)
def open_runs(scope: str, store: StoreOf, caller: Pipeline, batch: Number = 0, number: Number = 0) -> Response:
    """Return the open runs after (batch, number), at most about 8 MiB; batches count from 1. Ask on until there are none."""
    return WireResponse(store.plans.open_runs(caller.job_id, scope, batch, number))


@router.post("/runs", status_code=204)
def report(reports: RunReports, store: StoreOf, caller: Pipeline) -> None:
    """Store the last report of each run, and the pace of the batch that ended."""
    store.runs.report(caller.job_id, reports.runs, reports.ended)
