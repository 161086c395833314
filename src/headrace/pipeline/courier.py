"""What the driver tells the api, in order and until it is heard: runs, and the cursor after each commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, Self

import structlog

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiError, ApiUnavailable
from headrace.wire.events import Cursor
from headrace.wire.runs import RunReport

_MOST_RUNS: Final = 200
_LONGEST_PAUSE: Final = 5.0

LAST_WORDS: Final = 5.0
"""Seconds for which a process that is to end still tries to be heard."""


class Courier:
    """A thread that sends. An api that is away is tried again until it answers; what it refuses is logged and dropped."""

    def __init__(self, client: PipelineClient, scope: str) -> None:
        self._client = client
        self._scope = scope
        self._changed = threading.Condition()
        self._runs: list[RunReport] = []
        self._cursor: Cursor | None = None
        self._busy = False
        self._closing = False
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._work, name="courier", daemon=True)
        self._log = structlog.get_logger(__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Send what is left, for LAST_WORDS seconds."""
        self.flush(lambda: True)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._hurry.set()
        self._thread.join()

    def report(self, run: RunReport) -> None:
        """Send a run, some time soon."""
        with self._changed:
            self._runs.append(run)
            self._changed.notify_all()

    def commit(self, cursor: Cursor) -> None:
        """Send a cursor, some time soon; one that was not sent yet is overtaken."""
        with self._changed:
            self._cursor = cursor
            self._changed.notify_all()

    def flush(self, hurry: Callable[[], bool]) -> bool:
        """Wait until all was sent; False if it was not within LAST_WORDS seconds from when `hurry` first said so."""
        deadline: float | None = None
        with self._changed:
            while not self._idle():
                if deadline is None and hurry():
                    deadline = time.monotonic() + LAST_WORDS
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self._changed.wait(0.1)
        return True

    def _idle(self) -> bool:
        return not self._busy and not self._runs and self._cursor is None

    def _work(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closing or not self._idle())
                if self._closing:
                    return
                self._busy = True
                runs, self._runs = self._runs[:_MOST_RUNS], self._runs[_MOST_RUNS:]
                cursor, self._cursor = self._cursor, None
            self._deliver(partial(self._client.report, runs), "runs")
            if cursor is not None:
                self._deliver(partial(self._client.commit, self._scope, cursor), "cursor")

    def _deliver(self, send: Callable[[], None], what: str) -> None:
        pause = 0.1
        while not self._hurry.is_set():
            try:
                send()
            except ApiUnavailable as error:
                self._log.debug("api away, report kept", what=what, error=str(error))
                self._hurry.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            except ApiError as error:
                self._log.error("report refused", what=what, error=str(error), hint=error.hint)
                return
            else:
                return
