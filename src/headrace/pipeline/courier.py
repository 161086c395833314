"""What the driver tells the api, in order and until it is heard: runs, and the cursor after each commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Final, Self

import structlog

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiError, ApiRefused, ApiUnavailable, PipelineError
from headrace.wire.events import Cursor
from headrace.wire.runs import RunReport

_MOST_RUNS: Final = 200
_LONGEST_PAUSE: Final = 5.0

LAST_WORDS: Final = 5.0
"""Seconds for which a process that is to end still tries to be heard."""


class Courier:
    """A thread that sends. An api that is away is tried again until it answers.

    The first report that the API refuses ends it (`failure`): the batch that it belongs to is not committed, and comes again.
    """

    def __init__(self, client: PipelineClient, scope: str) -> None:
        self._client = client
        self._scope = scope
        self._changed = threading.Condition()
        self._runs: list[RunReport] = []
        self._cursor: Cursor | None = None
        self._busy = False
        self._closing = False
        self._hurry = threading.Event()
        self.failure: PipelineError | None = None
        self._thread = threading.Thread(target=self._work, name="courier", daemon=True)
        self._log = structlog.get_logger(__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Send what is left, for LAST_WORDS seconds."""
        with suppress(PipelineError):  # who waited for the reports of a batch was told
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
        """Wait until all was sent; False if it was not within LAST_WORDS seconds from when `hurry` first said so.

        Raises:
            PipelineError: The API refused a report, or it could not be written.
        """
        deadline: float | None = None
        with self._changed:
            while not self._idle():
                if self.failure is not None:
                    raise self.failure
                if deadline is None and hurry():
                    deadline = time.monotonic() + LAST_WORDS
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self._changed.wait(0.1)
        return True

    def _idle(self) -> bool:
        return not self._busy and not self._runs and self._cursor is None

    def _work(self) -> None:
        try:
            self._send()
        except Exception as error:  # whatever it is: the thread that waits for the reports must hear of it
            hint = error.hint if isinstance(error, ApiError) else None
            with self._changed:
                self.failure = PipelineError(f"What the batch did cannot be reported: {error}", hint=hint)
                self.failure.__cause__ = error
                self._changed.notify_all()

    def _send(self) -> None:
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
            self._report(runs)
            if cursor is not None:
                self._deliver(partial(self._client.commit, self._scope, cursor), "cursor")

    def _report(self, runs: list[RunReport]) -> None:
        """Send runs, in halves where they are too large together."""
        try:
            self._deliver(partial(self._client.report, runs), "runs")
        except ApiRefused as error:
            if error.problem != "too-large" or len(runs) < 2:
                raise
            self._report(runs[: len(runs) // 2])
            self._report(runs[len(runs) // 2 :])

    def _deliver(self, send: Callable[[], None], what: str) -> None:
        """Send until it arrives, or until there is no more time."""
        pause = 0.1
        while not self._hurry.is_set():
            try:
                send()
            except ApiUnavailable as error:
                self._log.debug("api away, report kept", what=what, error=str(error))
                self._hurry.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                return
