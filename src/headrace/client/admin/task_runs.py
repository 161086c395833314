"""Task runs as the command line requests them; changes need the deployment key."""

from __future__ import annotations

from headrace.client.admin.client import AdminClient
from headrace.client.http.responses import TIMEOUT_SECONDS
from headrace.wire.calls import admin as calls
from headrace.wire.task_runs import StartTask, TaskRunDetail, TaskRunList, TaskRunStatus


class TaskRunsClient(AdminClient):
    """Requests task runs from the admin API."""

    def __init__(self, url: str, *, key: str = "", timeout: float = TIMEOUT_SECONDS) -> None:
        super().__init__(url, token=key or None, timeout=timeout)

    def task_runs(self, *, limit: int, state: str | None = None, task: str | None = None) -> TaskRunList:
        """Return task runs, the last changed first."""
        return self.request(calls.LIST_TASK_RUNS, None, query={"limit": limit, "state": state, "task": task})

    def run(self, run_id: str) -> TaskRunDetail:
        """Return one run with its arguments and its result."""
        return self.request(calls.GET_TASK_RUN, None, run_id=run_id)

    def start(self, start: StartTask) -> TaskRunStatus:
        """Start a run; the same id is the same run."""
        return self.request(calls.START_TASK_RUN, start)

    def cancel(self, run_id: str) -> TaskRunStatus:
        """Cancel a run. An ended run is left as it is."""
        return self.request(calls.CANCEL_TASK_RUN, None, run_id=run_id)
