"""What a worker asks of the api."""

from __future__ import annotations

from typing import Protocol

from headrace.wire.control.jobs import CompleteJob, HeartbeatAnswer, JobRegistered, RegisterJob
from headrace.wire.task_runs import ClaimRuns, DeferRun, FinishRun, RunsClaimed, StartRun, TaskRunIs


class WorkerApi(Protocol):
    """The machine API as a worker sees it; thread-safe.

    Every call is idempotent. Raises `ApiUnavailable` when it may be tried again, `ApiRefused` (or `Fenced`) when it may not.
    """

    def register(self, job: RegisterJob) -> JobRegistered:
        """Register this process; the same registration id answers with the same job."""
        ...

    def heartbeat(self) -> HeartbeatAnswer:
        """Say that the job lives; get the next token in time."""
        ...

    def complete(self, end: CompleteJob) -> None:
        """End the job; the first end wins."""
        ...

    def claim_runs(self, asked: ClaimRuns) -> RunsClaimed:
        """Take runs to do, as soon as there are any; learn which are this worker's no longer."""
        ...

    def start_run(self, start: StartRun) -> TaskRunIs:
        """Start a run; the same id is the same run."""
        ...

    def defer_run(self, run_id: str, asked: DeferRun) -> TaskRunIs:
        """Defer a run: it releases its slot until its trigger fires."""
        ...

    def finish_run(self, run_id: str, asked: FinishRun) -> TaskRunIs:
        """End a run; the first end wins."""
        ...
