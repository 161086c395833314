"""Routes of task runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool

from headrace.api.auth.authentication import AnyJob, Worker
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireRoute
from headrace.api.routing import route
from headrace.store import Store
from headrace.wire.calls import execution as calls
from headrace.wire.task_runs import ClaimedRuns, ClaimRuns, DeferRun, FinishRun, StartRun, TaskRunResult, TaskRunStatus

router = APIRouter(tags=["task runs"], route_class=WireRoute)


@route(router, calls.START_TASK_RUN)
def start(body: StartRun, store: StoreOf, caller: AnyJob) -> TaskRunStatus:
    """Start a run of the job's project."""
    return store.task_runs.start_from(caller.job_id, body)


@route(router, calls.CLAIM_TASK_RUNS)
async def claim(body: ClaimRuns, store: StoreOf, caller: Worker) -> ClaimedRuns:
    """Assign runs to the worker once there are any, at the latest after `wait` seconds. It counts as a heartbeat."""
    loop = asyncio.get_running_loop()
    until = loop.time() + body.wait
    with _claimable_runs(store) as signalled:
        while True:
            signalled.clear()
            answer = await run_in_threadpool(store.task_runs.claim, caller.job_id, body)
            left = until - loop.time()
            if answer.runs or answer.revoked or answer.desired_state != "run" or left <= 0:
                return answer
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await signalled.wait()


@route(router, calls.DEFER_TASK_RUN)
def defer(run_id: str, body: DeferRun, store: StoreOf, caller: Worker) -> TaskRunStatus:
    """Defer a run: it releases its slot until its trigger fires."""
    return store.task_runs.defer(caller.job_id, run_id, body)


@route(router, calls.FINISH_TASK_RUN)
def finish(run_id: str, body: FinishRun, store: StoreOf, caller: Worker) -> TaskRunStatus:
    """End a run with its result or error."""
    return store.task_runs.finish(caller.job_id, run_id, body)


@route(router, calls.GET_TASK_RUN_STATE)
def state(run_id: str, store: StoreOf, caller: AnyJob) -> TaskRunStatus:
    """Return the state of a task run of the job's project."""
    result = store.task_runs.result(run_id, project=store.task_runs.project_of(caller.job_id))
    return TaskRunStatus(run_id=run_id, state=result.state)


@route(router, calls.GET_TASK_RUN_RESULT)
def result(run_id: str, store: StoreOf, caller: AnyJob) -> TaskRunResult:
    """Return the result or the error of a task run of the job's project."""
    return store.task_runs.result(run_id, project=store.task_runs.project_of(caller.job_id))


@contextmanager
def _claimable_runs(store: Store) -> Iterator[asyncio.Event]:
    """Yield an event that is set when there may be runs to claim."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()

    def notify() -> None:
        with suppress(RuntimeError):  # the loop has closed since: no task waits any more
            loop.call_soon_threadsafe(signalled.set)

    unsubscribe = store.task_runs.commit_signal.listen(notify)
    try:
        yield signalled
    finally:
        unsubscribe()
