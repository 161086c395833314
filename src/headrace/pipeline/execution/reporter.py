"""Report runs and ended batches to the API, in order, repeating requests until it answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import structlog

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiError, ApiRefused, ApiUnavailable, PipelineError
from headrace.retry import Backoff
from headrace.wire.pipelines.runs import BatchEnded, RunReport

CLOSE_SECONDS: Final = 5.0
"""How long a process that stops continues to send reports."""

_MAX_RUNS: Final = 200


class Reporter:
    """A thread that sends reports. It repeats a request until the API answers.

    The first report that the API refuses ends it (`failure`): the run stays open, and a later driver executes it again.
    """

    def __init__(self, client: PipelineClient) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._runs: list[RunReport] = []
        self._ended: BatchEnded | None = None
        self._busy = False
        self._closing = False
        self._hurry = threading.Event()
        self.failure: PipelineError | None = None
        self._thread = threading.Thread(target=self._work, name="reporter", daemon=True)
        self._log = structlog.get_logger(__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Send the remaining reports for up to CLOSE_SECONDS."""
        with suppress(PipelineError):  # `failure` has it
            self.flush(lambda: True)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._hurry.set()
        self._thread.join()

    def report(self, run: RunReport) -> None:
        """Queue the report of a run."""
        with self._changed:
            self._runs.append(run)
            self._changed.notify_all()

    def batch_ended(self, ended: BatchEnded) -> None:
        """Queue the end of a batch. It replaces one that was not sent yet."""
        with self._changed:
            self._ended = ended
            self._changed.notify_all()

    def flush(self, hurry: Callable[[], bool]) -> bool:
        """Wait until all reports are sent. Return False after CLOSE_SECONDS from the time when `hurry` first returned True.

        Raises:
            PipelineError: The API refused a report, or it could not be encoded.
        """
        deadline: float | None = None
        with self._changed:
            while not self._idle():
                if self.failure is not None:
                    raise self.failure
                if deadline is None and hurry():
                    deadline = time.monotonic() + CLOSE_SECONDS
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self._changed.wait(0.1)
        return True

    def _idle(self) -> bool:
        return not self._busy and not self._runs and self._ended is None

    def _work(self) -> None:
        try:
            self._send()
        except Exception as error:  # any error must reach the driver, which ends with it
            hint = error.hint if isinstance(error, ApiError) else None
            with self._changed:
                self.failure = PipelineError(f"A run cannot be reported: {error}", hint=hint)
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
                runs, self._runs = self._runs[:_MAX_RUNS], self._runs[_MAX_RUNS:]
                ended = None
                if not self._runs:
                    ended, self._ended = self._ended, None
            self._report(runs, ended)

    def _report(self, runs: list[RunReport], ended: BatchEnded | None) -> None:
        """Send reports, split in halves if they are too large for one request."""
        try:
            self._deliver(runs, ended)
        except ApiRefused as error:
            if error.problem != "too-large" or len(runs) < 2:
                raise
            self._report(runs[: len(runs) // 2], None)
            self._report(runs[len(runs) // 2 :], ended)

    def _deliver(self, runs: list[RunReport], ended: BatchEnded | None) -> None:
        """Send until the API answers, or until the time for closing is over."""
        backoff = Backoff()
        while not self._hurry.is_set():
            try:
                self._client.report(runs, ended)
            except ApiUnavailable as error:
                self._log.debug("report delayed", runs=len(runs), error=str(error))
                self._hurry.wait(backoff.next(error.retry_after))
            else:
                return
