"""POST /execution/scopes/{scope}/lease; GET and POST …/cursor; POST /execution/runs."""

from __future__ import annotations

from fastapi import APIRouter

from headrace.api.access import StoreOf
from headrace.api.auth import AnyJob, Pipeline
from headrace.api.bodies import WireRoute
from headrace.store.log_head import log_id
from headrace.wire.events import Cursor
from headrace.wire.runs import RunReports
from headrace.wire.scope_leases import ScopeLease

router = APIRouter(prefix="/execution", tags=["scopes"], route_class=WireRoute)


@router.post("/scopes/{scope:path}/lease")
def lease(scope: str, store: StoreOf, caller: Pipeline) -> ScopeLease:
    """Grant the scope to this job: from then on no other driver's requests count."""
    epoch = store.scope_leases.acquire(caller.job_id, scope)
    return ScopeLease(scope=scope, epoch=epoch, log=log_id(store.instance), cursor=store.scopes.cursor(scope))


@router.get("/scopes/{scope:path}/cursor")
def cursor(scope: str, store: StoreOf, caller: AnyJob) -> Cursor:
    """Return how far the scope has committed; a scope that never did is at 0."""
    store.jobs.check(caller.job_id)
    return store.scopes.cursor(scope)


@router.post("/scopes/{scope:path}/cursor", status_code=204)
def commit(scope: str, committed: Cursor, store: StoreOf, caller: Pipeline) -> None:
    """Commit the scope's cursor, with what its ordering holds."""
    store.scopes.commit(caller.job_id, scope, committed)


@router.post("/runs", status_code=204)
def report(reports: RunReports, store: StoreOf, caller: Pipeline) -> None:
    """Keep the last report of each run."""
    store.runs.report(caller.job_id, reports.runs)
