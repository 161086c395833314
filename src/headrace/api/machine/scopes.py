"""GET and POST /execution/scopes/{scope}/cursor; POST /execution/runs."""

from __future__ import annotations

from fastapi import APIRouter

from headrace.api.access import StoreOf
from headrace.api.auth import AnyJob, Pipeline
from headrace.api.bodies import WireRoute
from headrace.wire.events import Cursor
from headrace.wire.runs import RunReports

router = APIRouter(prefix="/execution", tags=["scopes"], route_class=WireRoute)


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
