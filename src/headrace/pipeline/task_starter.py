"""Start task runs from a pipeline: durably, before its function continues."""

from __future__ import annotations

import threading

from headrace.client.pipeline import PipelineClient
from headrace.retry import retry_until_stopped
from headrace.wire.calls.execution import START_TASK_RUN
from headrace.wire.task_runs import StartRun, TaskRunStatus


class TaskStarter:
    """Starts task runs. Repeats a request while the API is unavailable, until `stop` is set."""

    def __init__(self, client: PipelineClient, stop: threading.Event) -> None:
        self._client = client
        self._stop = stop

    def __call__(self, start: StartRun) -> TaskRunStatus:
        """Start a run. The same id is the same run."""
        return retry_until_stopped(lambda: self._client.request(START_TASK_RUN, start), self._stop, f"start of the task {start.task!r}")
