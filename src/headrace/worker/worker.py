"""One worker: registers a job, claims task runs, does each in a thread of its own, and ends in order.

The api is asked all the time, and answers as soon as there is something to do: nobody polls. What it says is a run's no longer is told to
the run, which may look (`run.cancelled`); a thread cannot be made to end, so a body that never looks goes on, and counts for nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass

import structlog

from headrace.errors import ApiError, ApiUnavailable, Fenced
from headrace.ports.worker_api import WorkerApi
from headrace.retry import Backoff
from headrace.tasks.task import Task
from headrace.wire.control.jobs import CompleteJob, RegisterJob
from headrace.wire.task_runs import ClaimedRun, ClaimRuns, RunsClaimed
from headrace.worker.execution import Execution, WorkerContext

WAIT = 2.0  # seconds in which the api answers that there is nothing to do
GRACE = 15.0  # seconds that runs have to end after the worker was asked to stop


@dataclass(slots=True)
class _Slot:
    execution: Execution
    thread: threading.Thread


class Worker:
    """Runs until told to stop. When its job is declared dead (it was silent for too long), it begins again as a new one."""

    def __init__(
        self,
        api: WorkerApi,
        tasks: Mapping[str, Task],
        around: WorkerContext,
        *,
        next_registration: Callable[[], str],
        capacity: int = 4,
    ) -> None:
        self._api = api
        self._tasks = tasks
        self._around = around
        self._next_registration = next_registration
        self._capacity = capacity
        self._places: dict[str, _Slot] = {}
        self._leaving = threading.Event()
        self._log = structlog.get_logger(__name__)

    def run(self, job: RegisterJob, stop: threading.Event) -> None:
        """Work until `stop` is set.

        Raises:
            ApiError: The api refuses this process.
        """
        while not stop.is_set():
            try:
                self._one_job(job, stop)
            except Fenced as over:
                self._log.warning("this job is over, beginning a new one", reason=str(over))
                self._let_go(list(self._places))
                job = job.model_copy(update={"registration_id": self._next_registration(), "replaces": job.registration_id})

    def _one_job(self, job: RegisterJob, stop: threading.Event) -> None:
        every = self._register(job, stop)
        if every is None:
            return
        backoff = Backoff()
        beat = time.monotonic()
        while not stop.is_set():
            try:
                answer = self._claim()
                if time.monotonic() - beat >= every:
                    self._api.heartbeat()
                    beat = time.monotonic()
            except ApiUnavailable as trouble:
                self._log.warning("api unavailable, trying again", error=str(trouble))
                stop.wait(backoff.next(trouble.retry_after))
                continue
            backoff.reset()
            self._let_go(answer.gone)
            for claimed in answer.runs:
                self._begin(claimed)
            if answer.wanted != "run":
                self._log.info("the api wants this job to end", wanted=answer.wanted)
                stop.set()
        self._farewell()

    def _register(self, job: RegisterJob, stop: threading.Event) -> float | None:
        """Register, waiting for the api; return how often it wants to hear of the job, None when told to stop before that."""
        backoff = Backoff(most=2.0)
        while not stop.is_set():
            try:
                registered = self._api.register(job)
            except ApiUnavailable as trouble:
                self._log.warning("waiting for the api", error=str(trouble))
                stop.wait(backoff.next(trouble.retry_after))
            else:
                self._log.info("job registered", job=registered.job_id, project=job.project, tasks=list(self._tasks))
                return registered.heartbeat
        return None

    def _claim(self) -> RunsClaimed:
        self._places = {run_id: place for run_id, place in self._places.items() if place.thread.is_alive()}
        running = [run_id for run_id, place in self._places.items() if not place.execution.gone.is_set()]
        free = max(0, self._capacity - len(self._places))
        return self._api.claim_runs(ClaimRuns(capacity=free, tasks=list(self._tasks), running=running, wait=WAIT))

    def _begin(self, claimed: ClaimedRun) -> None:
        execution = Execution(self._api, claimed, self._tasks[claimed.task], self._around, leaving=self._leaving)
        context = copy_context()
        thread = threading.Thread(target=context.run, args=(execution.run,), name=f"run {claimed.run_id}", daemon=True)
        self._places[claimed.run_id] = _Slot(execution, thread)
        thread.start()

    def _let_go(self, run_ids: list[str]) -> None:
        for run_id in run_ids:
            if (place := self._places.get(run_id)) is not None and place.thread.is_alive():
                self._log.info("the run is this worker's no longer", run=run_id)
                place.execution.gone.set()

    def _farewell(self) -> None:
        """Give what runs some time, then complete the job: what is left is begun again elsewhere."""
        deadline = time.monotonic() + GRACE
        for place in self._places.values():
            place.thread.join(max(0.0, deadline - time.monotonic()))
        self._leaving.set()
        left = [run_id for run_id, place in self._places.items() if place.thread.is_alive()]
        self._let_go(left)
        try:
            self._api.complete(CompleteJob(state="succeeded"))
        except ApiError as trouble:
            self._log.warning("the job's end is not recorded, it will expire", error=str(trouble))
        else:
            self._log.info("job completed", left=len(left))
