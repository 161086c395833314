"""Task runs as the command line asks for them; what changes something needs the deployment key."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import httpx

from headrace.client.http.responses import (
    TIMEOUT_SECONDS,
    bearer,
    options,
    raise_for_problem,
    translate_decode_errors,
    translate_transport_errors,
)
from headrace.wire.base import WireModel
from headrace.wire.task_runs import StartTask, TaskRunDetail, TaskRunIs, TaskRunList

M = TypeVar("M", bound=WireModel)
PATH = "/api/v1/task-runs"


class TaskRunsClient:
    """Asks the admin API for task runs."""

    def __init__(self, url: str, *, key: str = "", timeout: float = TIMEOUT_SECONDS) -> None:
        self._url = url.rstrip("/")
        self._key = key
        self._http = httpx.Client(**options(self._url, timeout=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._http.close()

    def runs(self, *, limit: int, state: str | None = None, task: str | None = None) -> TaskRunList:
        """Return runs, those that changed last first."""
        params = {"limit": limit} | {name: value for name, value in {"state": state, "task": task}.items() if value is not None}
        return self._ask("GET", PATH, TaskRunList, params=params)

    def run(self, run_id: str) -> TaskRunDetail:
        """Return one run with its arguments and its result."""
        return self._ask("GET", f"{PATH}/{quote(run_id, safe='')}", TaskRunDetail)

    def start(self, start: StartTask) -> TaskRunIs:
        """Start a run; the same id is the same run."""
        return self._ask("POST", PATH, TaskRunIs, start)

    def cancel(self, run_id: str) -> TaskRunIs:
        """Cancel a run; one that has ended stays as it ended."""
        return self._ask("POST", f"{PATH}/{quote(run_id, safe='')}/cancel", TaskRunIs)

    def _ask(
        self, method: str, path: str, answer: type[M], body: WireModel | None = None, *, params: dict[str, str | int] | None = None
    ) -> M:
        headers = {"Content-Type": "application/json"} | (bearer(self._key) if self._key else {})
        content = None if body is None else body.model_dump_json()
        with translate_transport_errors(self._url):
            response = self._http.request(method, path, content=content, params=params, headers=headers)
        with translate_decode_errors(self._url):
            return answer.model_validate_json(raise_for_problem(response).content)
