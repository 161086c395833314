"""The heartbeat of the pipeline's job, and the fence that depends on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf
from types import TracebackType
from typing import Final, Self

import structlog

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiError, ApiUnavailable
from headrace.wire.control.jobs import Heartbeat, RunningBatch

FRESH_SECONDS: Final = 3.0
"""How long after a heartbeat the job is certainly alive. It is shorter than the time after which another driver can acquire the scope."""


class JobHeartbeat:
    """A thread that sends heartbeats with the running `batch`.

    It sets `stop` when the API requests that the job ends, or no longer knows it (`failure`).
    """

    def __init__(
        self, client: PipelineClient, interval: float, stop: threading.Event, batch: Callable[[], RunningBatch | None] = lambda: None
    ) -> None:
        self._client = client
        self._interval = interval
        self._stop = stop
        self._batch = batch
        self._stopped = threading.Event()
        self._confirmed = -inf
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._log = structlog.get_logger(__name__)
        self.failure: ApiError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()

    def fence(self) -> None:
        """Return once the job is certainly alive: immediately after a recent heartbeat, else after one more.

        Waits while the API is unavailable. The clock also counts while the host is suspended.

        Raises:
            ApiError: The job has ended (`stop` is set), or a stop was requested meanwhile.
        """
        while _seconds() - self._confirmed > FRESH_SECONDS:
            try:
                self._beat()
            except ApiUnavailable:
                if self._stop.wait(self._interval):
                    raise

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self._beat()
            except ApiUnavailable as error:
                self._log.warning("heartbeat failed: API unavailable", error=str(error))
            except ApiError:
                return

    def _beat(self) -> None:
        sent = _seconds()
        try:
            # A later answer would confirm nothing, and a dead connection must not outlast the lease.
            answer = self._client.heartbeat(Heartbeat(batch=self._batch()), timeout=FRESH_SECONDS)
        except ApiUnavailable:
            raise
        except ApiError as error:
            self.failure = error
            self._stop.set()
            raise
        self._confirmed = max(sent, self._confirmed)
        if answer.desired_state != "run":
            self._log.info("stop requested by the API", desired_state=answer.desired_state)
            self._stop.set()


def _seconds() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
