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
"""How long after a heartbeat was sent the job certainly lives: less than the silence after which another driver may have its scope."""


class JobHeartbeat:
    """A thread that says that the job lives, and which `batch` it is at.

    It sets `stop` when the api wants the job to end, or no longer knows it (`failure`).
    """

    def __init__(
        self, client: PipelineClient, interval: float, stop: threading.Event, batch: Callable[[], RunningBatch | None] = lambda: None
    ) -> None:
        self._client = client
        self._interval = interval
        self._stop = stop
        self._batch = batch
        self._ended = threading.Event()
        self._confirmed = -inf
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)
        self._log = structlog.get_logger(__name__)
        self.failure: ApiError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def fence(self) -> None:
        """Return once it is certain that the job still lives: at once after a fresh heartbeat, else after one more.

        An API that is away is waited for. The clock counts while the machine is suspended.

        Raises:
            ApiError: The job has ended (`stop` is set), or the process was told to stop meanwhile.
        """
        while _seconds() - self._confirmed > FRESH_SECONDS:
            try:
                self._beat()
            except ApiUnavailable:
                if self._stop.wait(self._interval):
                    raise

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                self._beat()
            except ApiUnavailable as error:
                self._log.warning("no heartbeat, the api is away", error=str(error))
            except ApiError:
                return

    def _beat(self) -> None:
        sent = _seconds()
        try:
            # A later answer would confirm nothing, and a connection that went silent must not outlast the lease.
            answer = self._client.heartbeat(Heartbeat(batch=self._batch()), timeout=FRESH_SECONDS)
        except ApiUnavailable:
            raise
        except ApiError as error:
            self.failure = error
            self._stop.set()
            raise
        self._confirmed = max(sent, self._confirmed)
        if answer.wanted != "run":
            self._log.info("the api asks the pipeline to end", wanted=answer.wanted)
            self._stop.set()


def _seconds() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
