"""How a pipeline starts task runs: durably, before its function goes on."""

from __future__ import annotations

import threading

import structlog

from headrace.client.pipeline import PipelineClient
from headrace.engine.backoff import Backoff
from headrace.errors import ApiUnavailable
from headrace.wire.deferred import StartRun, TaskRunIs


class Starter:
    """Starts runs. An api that is away is waited for, until the process is to stop."""

    def __init__(self, client: PipelineClient, stop: threading.Event) -> None:
        self._client = client
        self._stop = stop
        self._log = structlog.get_logger(__name__)

    def __call__(self, start: StartRun) -> TaskRunIs:
        """Start a run; the same id is the same run."""
        backoff = Backoff()
        while True:
            try:
                return self._client.start_run(start)
            except ApiUnavailable as trouble:
                self._log.warning("task run not started, trying again", task=start.task, error=str(trouble))
                if self._stop.wait(backoff.next(trouble.retry_after)):
                    raise
