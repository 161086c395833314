"""The heartbeat of the pipeline's job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiError, ApiUnavailable
from headrace.wire.jobs import Heartbeat, RunningBatch


class Heart:
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
        self._thread = threading.Thread(target=self._beat, name="heart", daemon=True)
        self._log = structlog.get_logger(__name__)
        self.failure: ApiError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                answer = self._client.heartbeat(Heartbeat(batch=self._batch()))
            except ApiUnavailable as error:
                self._log.warning("no heartbeat, the api is away", error=str(error))
                continue
            except ApiError as error:
                self.failure = error
                self._stop.set()
                return
            if answer.wanted != "run":
                self._log.info("the api asks the pipeline to end", wanted=answer.wanted)
                self._stop.set()
