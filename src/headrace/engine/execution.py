"""One task run, done in a thread: its body is called, and the api is told how that ended."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from headrace.engine.backoff import Backoff
from headrace.errors import ApiError, ApiUnavailable, TaskCancelled
from headrace.logs.targets import run_log
from headrace.ports.worker import WorkerControl
from headrace.tasks.deferred import TaskDeferred, TaskSkipped, as_json
from headrace.tasks.run import Run
from headrace.tasks.starting import starting
from headrace.tasks.task import Task
from headrace.triggers.masking import mask
from headrace.wire.deferred import ClaimedRun, DeferRun, FinishRun, StartRun, TaskRunIs

T = TypeVar("T")
_TRACEBACK = 40  # lines kept of what a task failed with


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every run of this worker finds: the project's name, the folder of its tables, and how to get at Spark."""

    project: str
    tables: Path
    spark: Callable[[], Any]


@dataclass
class Execution:
    """One claimed run. `run` does it, in whichever thread calls; `cancelled` is set when it is this worker's no longer."""

    api: WorkerControl
    claimed: ClaimedRun
    task: Task
    around: Surroundings
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
                told = self._told()
            except ApiError as refusal:
                log.warning("the api does not take how the run ended: it is another's", error=str(refusal))
            else:
                log.info("task ended", state=None if told is None else told.state)

    def _told(self) -> TaskRunIs | None:
        """Call the body; return what the api says of how it ended, None where it need not or could not be told."""
        claimed = self.claimed
        try:
            result = as_json(self._call(), f"what the task {claimed.task!r} returned")
            end = FinishRun(epoch=claimed.epoch, state="succeeded", result=result)
        except TaskDeferred as deferred:
            return self._defer(deferred)
        except TaskSkipped as skipped:
            end = FinishRun(epoch=claimed.epoch, state="skipped", result=as_json(skipped.reason, "the reason"))
        except TaskCancelled:
            if self.gone.is_set():
                return None
            end = self._failed()
        except (Exception, SystemExit):  # a user's body may raise anything
            end = self._failed()
        return self._insist(lambda: self.api.finish_run(claimed.run_id, end))

    def _call(self) -> Any:
        claimed = self.claimed
        around = self.around
        spark = around.spark if self.task.spark else None
        run = Run(claimed.run_id, claimed.task, around.project, claimed.attempt, around.tables, spark, self.gone)
        return self.task.body(claimed.method)(run, **msgspec.json.decode(claimed.kwargs))

    def _defer(self, deferred: TaskDeferred) -> TaskRunIs | None:
        claimed = self.claimed
        try:
            asked = DeferRun(epoch=claimed.epoch, waiting=self.task.check(deferred).waiting())
        except Exception:  # a trigger that cannot be written down, a method that is not there
            end = self._failed()
            return self._insist(lambda: self.api.finish_run(claimed.run_id, end))
        return self._insist(lambda: self.api.defer_run(claimed.run_id, asked))

    def _failed(self) -> FinishRun:
        """Return the failure that is being handled: what was raised first, then its traceback's end."""
        lines = traceback.format_exc().rstrip().splitlines()
        structlog.get_logger(__name__).error("task failed", error=lines[-1], exc_info=True)
        text = "\n".join([lines[-1], *lines[-_TRACEBACK:-1]]).replace("\0", "\N{REPLACEMENT CHARACTER}")
        return FinishRun(epoch=self.claimed.epoch, state="failed", error=mask(text)[:100_000])

    def _start(self, start: StartRun) -> None:
        if self._insist(lambda: self.api.start_run(start)) is None:
            raise TaskCancelled("The worker stops, and could not start another run before that.")

    def _insist(self, call: Callable[[], T]) -> T | None:
        """Make a call until the api answers; None: the run is this worker's no longer, or the worker leaves."""
        backoff = Backoff()
        while not self.gone.is_set():
            try:
                return call()
            except ApiUnavailable as trouble:
                if self.leaving.wait(backoff.next(trouble.retry_after)):
                    return None
        return None
