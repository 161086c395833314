"""/execution/task-runs: started by any job, claimed, deferred and finished by workers; /execution/runs/{id}/state and …/result."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.concurrency import run_in_threadpool

from headrace.api.auth.authentication import AnyJob, Caller
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireRoute
from headrace.store import Store
from headrace.wire.task_runs import ClaimRuns, DeferRun, FinishRun, RunsClaimed, StartRun, TaskRunIs, TaskRunResult

router = APIRouter(prefix="/execution", tags=["task runs"], route_class=WireRoute)


async def worker(who: AnyJob) -> Caller:
    """Return the worker whose token the request carries."""
    who.must_be("worker")
    return who


Worker = Annotated[Caller, Depends(worker)]


@router.post("/task-runs")
def start(asked: StartRun, store: StoreOf, caller: AnyJob) -> TaskRunIs:
    """Start a run of the job's project; the same id is the same run."""
    return store.task_runs.start_from(caller.job_id, asked)


@router.post("/task-runs/claim")
async def claim(asked: ClaimRuns, store: StoreOf, caller: Worker) -> RunsClaimed:
    """Give the worker runs to do, as soon as there are any, or after `wait` seconds none; a sign of life too."""
    loop = asyncio.get_running_loop()
    until = loop.time() + asked.wait
    with _heard(store) as rung:
        while True:
            rung.clear()
            answer = await run_in_threadpool(store.task_runs.claim, caller.job_id, asked)
            left = until - loop.time()
            if answer.runs or answer.gone or answer.wanted != "run" or left <= 0:
                return answer
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await rung.wait()


@router.post("/task-runs/{run_id}/defer")
def defer(run_id: str, asked: DeferRun, store: StoreOf, caller: Worker) -> TaskRunIs:
    """Defer a run: it releases its slot until its trigger fires."""
    return store.task_runs.defer(caller.job_id, run_id, asked)


@router.post("/task-runs/{run_id}/finish")
def finish(run_id: str, asked: FinishRun, store: StoreOf, caller: Worker) -> TaskRunIs:
    """End a run; the first end wins."""
    return store.task_runs.finish(caller.job_id, run_id, asked)


@router.get("/runs/{run_id}/state")
def state(run_id: str, store: StoreOf, caller: AnyJob) -> TaskRunIs:
    """Return in which state a task run of the job's project is."""
    found = store.task_runs.result(run_id, project=store.task_runs.project_of(caller.job_id))
    return TaskRunIs(run_id=run_id, state=found.state)


@router.get("/runs/{run_id}/result")
def result(run_id: str, store: StoreOf, caller: AnyJob) -> TaskRunResult:
    """Return what came of a task run of the job's project."""
    return store.task_runs.result(run_id, project=store.task_runs.project_of(caller.job_id))


@contextmanager
def _heard(store: Store) -> Iterator[asyncio.Event]:
    """Give an event that is set whenever the store says that there may be something to do."""
    rung = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ring() -> None:
        with suppress(RuntimeError):  # the loop has closed since: no task waits any more
            loop.call_soon_threadsafe(rung.set)

    forget = store.task_runs.bell.listen(ring)
    try:
        yield rung
    finally:
        forget()
