"""Admin routes of task runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.routing import route
from headrace.store.queries.task_runs import task_run, task_run_list
from headrace.wire.calls import admin as calls
from headrace.wire.task_runs import StartRun, StartTask, TaskRunDetail, TaskRunList, TaskRunState, TaskRunStatus

Limit = Annotated[int, Query(ge=1, le=1000, description="At most this many.")]


router = APIRouter(tags=["admin"])


@route(router, calls.LIST_TASK_RUNS)
def runs(store: StoreOf, limit: Limit = 100, state: TaskRunState | None = None, task: str | None = None) -> TaskRunList:
    """Return task runs, the last changed first."""
    with store.reading() as connection:
        return TaskRunList(runs=task_run_list(connection, limit=limit, state=state, task=task))


@route(router, calls.START_TASK_RUN)
def start(body: StartTask, store: StoreOf) -> TaskRunStatus:
    """Start a task run."""
    return store.task_runs.start(body.project, StartRun.model_validate(body.model_dump(exclude={"project"})))


@route(router, calls.GET_TASK_RUN)
def run(run_id: str, store: StoreOf) -> TaskRunDetail:
    """Return one task run with its arguments and its result."""
    with store.reading() as connection:
        detail = task_run(connection, run_id)
    if detail is None:
        raise Refusal(404, "not-found", f"No run has the id {run_id}.", hint="See: headrace task-runs list")
    return detail


@route(router, calls.CANCEL_TASK_RUN)
def cancel(run_id: str, store: StoreOf) -> TaskRunStatus:
    """Cancel a task run."""
    return store.task_runs.cancel(run_id)
