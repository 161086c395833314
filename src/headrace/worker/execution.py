"""One task run, done in a thread: its body is called, and the api is told how that ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from headrace.core.values.text import describe_error, traceback_lines
from headrace.errors import ApiError, ApiRefused, ApiUnavailable, Fenced, TaskCancelled
from headrace.logs.context import run_log
from headrace.ports.worker_api import WorkerApi
from headrace.retry import Backoff
from headrace.tasks.deferral import TaskDeferred, TaskSkipped, as_json
from headrace.tasks.run import Run
from headrace.tasks.starter import starting
from headrace.tasks.task import Task
from headrace.wire.task_runs import MAX_ERROR_CHARS, ClaimedRun, DeferRun, FinishRun, StartRun, TaskRunIs

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What every run of this worker finds: the project's name, the folder of its tables, and how to get at Spark."""

    project: str
    tables: Path
    spark: Callable[[], Any]


@dataclass
class Execution:
    """One claimed run. `run` does it, in whichever thread calls; `cancelled` is set when it is this worker's no longer."""

    api: WorkerApi
    claimed: ClaimedRun
    task: Task
    around: WorkerContext
    gone: threading.Event = field(default_factory=threading.Event)
    leaving: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Call the body and tell the api how it ended. What it failed with is told too; nothing is raised."""
        claimed = self.claimed
        parent = f"{claimed.run_id}/{claimed.method or ''}"
        with (
            run_log(claimed.run_id, task=claimed.task, method=claimed.method, attempt=claimed.attempt),
            starting(parent, self._start),
        ):
            log = structlog.get_logger(__name__).bind(run=claimed.run_id, task=claimed.task)
            log.info("task begins", method=claimed.method, attempt=claimed.attempt)
            try:
                reported = self._report()
            except ApiError as refusal:
                log.warning("the api does not take how the run ended: it is another's", error=str(refusal))
            else:
                log.info("task ended", state=None if reported is None else reported.state)

    def _report(self) -> TaskRunIs | None:
        """Call the body and report its end; return the run's state at the api, None if there was no answer or nothing to report.

        Raises:
            ApiError: The api refuses the report: another worker has the run.
        """
        end = self._end()
        try:
            return self._send(end)
        except Fenced:
            raise
        except ApiRefused as refusal:  # such as a result that is too large: a run without an end would begin again
            return self._send(self._failed(refusal))

    def _send(self, end: FinishRun | DeferRun | None) -> TaskRunIs | None:
        run_id = self.claimed.run_id
        if isinstance(end, DeferRun):
            return self._insist(lambda: self.api.defer_run(run_id, end))
        return None if end is None else self._insist(lambda: self.api.finish_run(run_id, end))

    def _end(self) -> FinishRun | DeferRun | None:
        """Call the body; return how it ended, None where the run was taken from this worker."""
        epoch = self.claimed.epoch
        try:
            try:
                result = as_json(self._call(), f"what the task {self.claimed.task!r} returned")
            except TaskDeferred as deferred:
                return DeferRun(epoch=epoch, waiting=self.task.check(deferred).waiting())
            except TaskSkipped as skipped:
                return FinishRun(epoch=epoch, state="skipped", result=as_json(skipped.reason, "the reason"))
            return FinishRun(epoch=epoch, state="succeeded", result=result)
        except BaseException as error:  # a user's body may raise anything, also KeyboardInterrupt
            if isinstance(error, TaskCancelled) and self.gone.is_set():
                return None
            return self._failed(error)

    def _call(self) -> Any:
        claimed = self.claimed
        around = self.around
        spark = around.spark if self.task.spark else None
        run = Run(claimed.run_id, claimed.task, around.project, claimed.attempt, around.tables, spark, self.gone)
        return self.task.body(claimed.method)(run, **msgspec.json.decode(claimed.kwargs))

    def _failed(self, error: BaseException) -> FinishRun:
        """Return the failure: the error, then the end of its traceback."""
        first = describe_error(error)
        structlog.get_logger(__name__).error("task failed", error=first, exc_info=error)
        text = "\n".join([first, *traceback_lines(error)[:-1]])
        return FinishRun(epoch=self.claimed.epoch, state="failed", error=text[:MAX_ERROR_CHARS])

    def _start(self, start: StartRun) -> None:
        if self._insist(lambda: self.api.start_run(start)) is None:
            raise TaskCancelled("The worker stops, and could not start another run before that.")

    def _insist(self, call: Callable[[], T]) -> T | None:
        """Make a call until the api answers. Return None if the run is this worker's no longer, or the worker leaves."""
        backoff = Backoff()
        while not self.gone.is_set():
            try:
                return call()
            except ApiUnavailable as trouble:
                if self.leaving.wait(backoff.next(trouble.retry_after)):
                    return None
        return None
