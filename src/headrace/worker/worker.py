"""Main loop of a worker: registers a job, claims task runs, executes each in a thread, and drains on shutdown.

Claims use long polling: the API answers as soon as there is a run. A revoked run can check `run.cancelled`. A thread
cannot be ended from outside, so a body that never checks continues, and its result is ignored.
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
from headrace.wire.calls.execution import CLAIM_TASK_RUNS
from headrace.wire.control.jobs import CompleteJob, RegisterJob
from headrace.wire.task_runs import ClaimedRun, ClaimedRuns, ClaimRuns
from headrace.worker.execution import Execution, WorkerContext

CLAIM_WAIT_SECONDS = 2.0  # seconds after which the API answers a claim without runs
GRACE_SECONDS = 15.0  # seconds in which runs can finish after a stop request


@dataclass(slots=True)
class _Slot:
    execution: Execution
    thread: threading.Thread


class Worker:
    """Runs until stopped. When its job has expired for lack of heartbeats, it continues under a new job."""

    def __init__(
        self,
        api: WorkerApi,
        tasks: Mapping[str, Task],
        context: WorkerContext,
        *,
        next_registration: Callable[[], str],
        capacity: int = 4,
    ) -> None:
        self._api = api
        self._tasks = tasks
        self._context = context
        self._next_registration = next_registration
        self._capacity = capacity
        self._slots: dict[str, _Slot] = {}
        self._stopping = threading.Event()
        self._log = structlog.get_logger(__name__)

    def run(self, job: RegisterJob, stop: threading.Event) -> None:
        """Run until `stop` is set.

        Raises:
            ApiError: The API refuses this process.
        """
        while not stop.is_set():
            try:
                self._one_job(job, stop)
            except Fenced as over:
                self._log.warning("job ended, registering a new one", reason=str(over))
                self._revoke(list(self._slots))
                job = job.model_copy(update={"registration_id": self._next_registration(), "replaces": job.registration_id})

    def _one_job(self, job: RegisterJob, stop: threading.Event) -> None:
        heartbeat_seconds = self._register(job, stop)
        if heartbeat_seconds is None:
            return
        backoff = Backoff()
        beat = time.monotonic()
        while not stop.is_set():
            try:
                answer = self._claim()
                if time.monotonic() - beat >= heartbeat_seconds:
                    self._api.heartbeat()
                    beat = time.monotonic()
            except ApiUnavailable as error:
                self._log.warning("api unavailable, trying again", error=str(error))
                stop.wait(backoff.next(error.retry_after))
                continue
            backoff.reset()
            self._revoke(answer.revoked)
            for claimed in answer.runs:
                self._begin(claimed)
            if answer.desired_state != "run":
                self._log.info("stop requested by the API", desired_state=answer.desired_state)
                stop.set()
        self._drain()

    def _register(self, job: RegisterJob, stop: threading.Event) -> float | None:
        """Register the job, waiting for the API. Return the heartbeat interval in seconds, or None if stopped before."""
        backoff = Backoff(max_seconds=2.0)
        while not stop.is_set():
            try:
                registered = self._api.register(job)
            except ApiUnavailable as error:
                self._log.warning("waiting for the API", error=str(error))
                stop.wait(backoff.next(error.retry_after))
            else:
                self._log.info("job registered", job=registered.job_id, project=job.project, tasks=list(self._tasks))
                return registered.heartbeat
        return None

    def _claim(self) -> ClaimedRuns:
        self._slots = {run_id: slot for run_id, slot in self._slots.items() if slot.thread.is_alive()}
        running = [run_id for run_id, slot in self._slots.items() if not slot.execution.revoked.is_set()]
        free = max(0, self._capacity - len(self._slots))
        return self._api.request(
            CLAIM_TASK_RUNS, ClaimRuns(capacity=free, tasks=list(self._tasks), running=running, wait=CLAIM_WAIT_SECONDS)
        )

    def _begin(self, claimed: ClaimedRun) -> None:
        execution = Execution(self._api, claimed, self._tasks[claimed.task], self._context, stopping=self._stopping)
        context = copy_context()
        thread = threading.Thread(target=context.run, args=(execution.run,), name=f"run {claimed.run_id}", daemon=True)
        self._slots[claimed.run_id] = _Slot(execution, thread)
        thread.start()

    def _revoke(self, run_ids: list[str]) -> None:
        for run_id in run_ids:
            if (slot := self._slots.get(run_id)) is not None and slot.thread.is_alive():
                self._log.info("run revoked", run=run_id)
                slot.execution.revoked.set()

    def _drain(self) -> None:
        """Wait up to `GRACE_SECONDS` for running task runs, then complete the job. Other workers restart the remaining runs."""
        deadline = time.monotonic() + GRACE_SECONDS
        for slot in self._slots.values():
            slot.thread.join(max(0.0, deadline - time.monotonic()))
        self._stopping.set()
        unfinished = [run_id for run_id, slot in self._slots.items() if slot.thread.is_alive()]
        self._revoke(unfinished)
        try:
            self._api.complete(CompleteJob(state="succeeded"))
        except ApiError as error:
            self._log.warning("job end not recorded; the job will expire", error=str(error))
        else:
            self._log.info("job completed", left=len(unfinished))
