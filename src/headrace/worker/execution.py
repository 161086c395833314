"""Execute one task run in a thread: call the task's body and report the result to the API."""

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
from headrace.wire.calls.execution import DEFER_TASK_RUN, FINISH_TASK_RUN, START_TASK_RUN
from headrace.wire.task_runs import MAX_ERROR_CHARS, ClaimedRun, DeferRun, FinishRun, StartRun, TaskRunStatus

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What all runs of this worker share: the project's name, the folder or URL of its tables, and access to Spark."""

    project: str
    tables: Path | str
    spark: Callable[[], Any]


@dataclass
class Execution:
    """One claimed run. `run` executes it in the calling thread. `revoked` is set when this worker no longer owns it."""

    api: WorkerApi
    claimed: ClaimedRun
    task: Task
    context: WorkerContext
    revoked: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Call the body and report its result or its error to the API. Never raises an `Exception`."""
        claimed = self.claimed
        parent = f"{claimed.run_id}/{claimed.method or ''}"
        with (
            run_log(claimed.run_id, task=claimed.task, method=claimed.method, attempt=claimed.attempt),
            starting(parent, self._start),
        ):
            log = structlog.get_logger(__name__).bind(run=claimed.run_id, task=claimed.task)
            log.info("task started", method=claimed.method, attempt=claimed.attempt)
            try:
                reported = self._report()
            except ApiError as error:
                log.warning("run result rejected: run is owned by another worker", error=str(error))
            else:
                log.info("task ended", state=None if reported is None else reported.state)

    def _report(self) -> TaskRunStatus | None:
        """Call the body and report the result. Return the run's state at the API, or None if it sent no answer or the run was revoked.

        Raises:
            ApiError: The API refuses the report, because another worker owns the run.
        """
        end = self._end()
        try:
            return self._send(end)
        except Fenced:
            raise
        except ApiRefused as error:  # such as a result that is too large: a run without a reported end would start again
            return self._send(self._failed(error))

    def _send(self, end: FinishRun | DeferRun | None) -> TaskRunStatus | None:
        run_id = self.claimed.run_id
        if isinstance(end, DeferRun):
            return self._call_until_answered(lambda: self.api.request(DEFER_TASK_RUN, end, run_id=run_id))
        return None if end is None else self._call_until_answered(lambda: self.api.request(FINISH_TASK_RUN, end, run_id=run_id))

    def _end(self) -> FinishRun | DeferRun | None:
        """Call the body. Return the report of its end, or None if the run was revoked."""
        epoch = self.claimed.epoch
        try:
            try:
                result = as_json(self._call(), f"what the task {self.claimed.task!r} returned")
            except TaskDeferred as deferred:
                return DeferRun(epoch=epoch, waiting=self.task.check(deferred).waiting())
            except TaskSkipped as skipped:
                return FinishRun(epoch=epoch, state="skipped", result=as_json(skipped.reason, "the reason"))
            return FinishRun(epoch=epoch, state="succeeded", result=result)
        except BaseException as error:  # a user's body may raise anything, including KeyboardInterrupt
            if isinstance(error, TaskCancelled) and self.revoked.is_set():
                return None
            return self._failed(error)

    def _call(self) -> Any:
        claimed = self.claimed
        context = self.context
        spark = context.spark if self.task.spark else None
        run = Run(claimed.run_id, claimed.task, context.project, claimed.attempt, context.tables, spark, self.revoked)
        return self.task.body(claimed.method)(run, **msgspec.json.decode(claimed.kwargs))

    def _failed(self, error: BaseException) -> FinishRun:
        """Return the report of a failure: the error, then the end of its traceback."""
        first = describe_error(error)
        structlog.get_logger(__name__).error("task failed", error=first, exc_info=error)
        text = "\n".join([first, *traceback_lines(error)[:-1]])
        return FinishRun(epoch=self.claimed.epoch, state="failed", error=text[:MAX_ERROR_CHARS])

    def _start(self, start: StartRun) -> None:
        if self._call_until_answered(lambda: self.api.request(START_TASK_RUN, start)) is None:
            raise TaskCancelled("The worker stops, and could not start another run before that.")

    def _call_until_answered(self, call: Callable[[], T]) -> T | None:
        """Repeat a call until the API answers. Return None if the run is revoked or the worker stops."""
        backoff = Backoff()
        while not self.revoked.is_set():
            try:
                return call()
            except ApiUnavailable as error:
                if self.stopping.wait(backoff.next(error.retry_after)):
                    return None
        return None
