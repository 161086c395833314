"""Task runs, for people: what runs, what waits and for what, what came of it; started and cancelled with the deployment key."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from headrace.api.auth.authentication import admin
from headrace.api.http.problems import Refusal
from headrace.store import Store
from headrace.store.queries.task_runs import task_run, task_run_list
from headrace.wire.task_runs import StartRun, StartTask, TaskRunDetail, TaskRunIs, TaskRunList, TaskRunState

Limit = Annotated[int, Query(ge=1, le=1000, description="At most this many.")]


def router_for(store: Store) -> APIRouter:
    """Return the routes over `store`. Those that change something need the deployment key as their bearer token."""
    router = APIRouter(prefix="/api/v1/task-runs", tags=["admin"])

    @router.get("")
    def runs(limit: Limit = 100, state: TaskRunState | None = None, task: str | None = None) -> TaskRunList:
        """Return task runs, the last changed first."""
        with store.reading() as connection:
            return TaskRunList(runs=task_run_list(connection, limit=limit, state=state, task=task))

    @router.post("", dependencies=[Depends(admin)])
    def start(asked: StartTask) -> TaskRunIs:
        """Start a run; the same id is the same run."""
        return store.task_runs.start(asked.project, StartRun.model_validate(asked.model_dump(exclude={"project"})))

    @router.get("/{run_id}")
    def run(run_id: str) -> TaskRunDetail:
        """Return one task run with its arguments and its result."""
        with store.reading() as connection:
            found = task_run(connection, run_id)
        if found is None:
            raise Refusal(404, "not-found", f"No run has the id {run_id}.", hint="See: headrace task-runs list")
        return found

    @router.post("/{run_id}/cancel", dependencies=[Depends(admin)])
    def cancel(run_id: str) -> TaskRunIs:
        """Cancel a run; one that has ended stays as it ended."""
        return store.task_runs.cancel(run_id)

    return router
