"""The machine API as a worker calls it: that of a pipeline's process, and the task runs."""

from __future__ import annotations

from urllib.parse import quote

from headrace.client.pipeline import PipelineClient
from headrace.wire.task_runs import ClaimRuns, DeferRun, FinishRun, RunsClaimed, TaskRunIs, TaskRunResult


class WorkerClient(PipelineClient):
    """Implements `WorkerApi` over HTTP."""

    def claim_runs(self, asked: ClaimRuns) -> RunsClaimed:
        """Take runs to do, as soon as there are any; learn which are this worker's no longer."""
        return self._ask("POST", "/execution/task-runs/claim", RunsClaimed, asked)

    def defer_run(self, run_id: str, asked: DeferRun) -> TaskRunIs:
        """Defer a run: it releases its slot until its trigger fires."""
        return self._ask("POST", f"/execution/task-runs/{quote(run_id, safe='')}/defer", TaskRunIs, asked)

    def finish_run(self, run_id: str, asked: FinishRun) -> TaskRunIs:
        """End a run; the first end wins."""
        return self._ask("POST", f"/execution/task-runs/{quote(run_id, safe='')}/finish", TaskRunIs, asked)

    def run_state(self, run_id: str) -> TaskRunIs:
        """Return in which state a task run is."""
        return self._ask("GET", f"/execution/runs/{quote(run_id, safe='')}/state", TaskRunIs)

    def run_result(self, run_id: str) -> TaskRunResult:
        """Return what came of a task run."""
        return self._ask("GET", f"/execution/runs/{quote(run_id, safe='')}/result", TaskRunResult)
