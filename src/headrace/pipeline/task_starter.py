"""How a pipeline starts task runs: durably, before its function goes on."""

from __future__ import annotations

import threading

from headrace.client.pipeline import PipelineClient
from headrace.retry import retry_until_stopped
from headrace.wire.task_runs import StartRun, TaskRunIs


class TaskStarter:
    """Starts task runs. It repeats a request while the API is away, until `stop` is set."""

    def __init__(self, client: PipelineClient, stop: threading.Event) -> None:
        self._client = client
        self._stop = stop

    def __call__(self, start: StartRun) -> TaskRunIs:
        """Start a run; the same id is the same run."""
        return retry_until_stopped(lambda: self._client.start_run(start), self._stop, f"start of the task {start.task!r}")
