"""Execute a planned run: call the pipeline, store what it returns, and report the outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final, TypeVar
from uuid import UUID, uuid5

import pyarrow as pa
import structlog
from pyspark.sql import SparkSession

from headrace.core.ranges import Ranges
from headrace.errors import ApiError, Fenced, PipelineError, RunConflict, RunTooLarge, TablesRefused, TablesUnavailable, TypeConflict
from headrace.logs.context import run_log
from headrace.pipeline.execution.bisection import Searches, is_part, parts_of, split_of
from headrace.pipeline.execution.reporter import Reporter
from headrace.pipeline.execution.returned_runs import ReturnedRuns
from headrace.pipeline.execution.run_lock import RunLock
from headrace.pipeline.execution.running_runs import RunningRuns
from headrace.pipeline.log_reader import LogReader
from headrace.pipeline.payload.frames import DataFrames
from headrace.pipeline.payload.schemas import PayloadSchemas
from headrace.pipeline.runs.code_version import code_of
from headrace.pipeline.runs.identity import Attempt, RunKey, digest_of, run_id
from headrace.pipeline.runs.run import Run, size_of
from headrace.pipeline.spark.errors import JvmDied, jvm_died, pipeline_error
from headrace.pipeline.tables.sink import TableSink
from headrace.pipeline.tables.table_runs import TableRun, call_pipeline
from headrace.pipeline_declaration import Pipeline, TableFormat
from headrace.retry import retry_until_stopped
from headrace.tasks.starter import Starter, starting
from headrace.wire.pipelines.plans import SplitRun
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.pipelines.scope_leases import ScopeLease

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 0.5
"""Seconds before the second attempt of a pipeline that raised. Each further pause is four times as long, up to MAX_PAUSE_SECONDS."""
MAX_PAUSE_SECONDS: Final = 30.0
MAX_JVM_DEATHS: Final = 3
"""Attempts after which a run becomes a dead letter, if the last one ended with Spark's JVM while no other run was executed."""
MAX_CRASHES: Final = 10
"""Attempts that ended with the driver's process, after which a run becomes a dead letter."""
MAX_CONCURRENT_RUNS: Final = 8
"""Runs that are executed concurrently, without runs that wait for a further attempt."""

_MAX_RANGES: Final = 8


class _AttemptEnd(Enum):
    """How an attempt ended: with an outcome, with a failure before the last attempt, or with a failure that splits the run."""

    DONE = auto()
    FAILED = auto()
    SPLIT = auto()


class StopRequested(PipelineError):
    """The pipeline was stopped; the run stays open."""


@dataclass(frozen=True, slots=True)
class RunServices:
    """Services of a run's execution: sinks for rows, payload schemas, reports, task starts, splits, heartbeats, and pauses."""

    sinks: Mapping[TableFormat, TableSink]
    payloads: PayloadSchemas
    reporter: Reporter
    starter: Starter
    split: Callable[[SplitRun], None]
    running: RunningRuns
    run_lock: RunLock


class RunExecutor:
    """Executes the runs of one scope; several threads may call it. Rows that a table already has are not computed again."""

    def __init__(
        self,
        spark: SparkSession,
        pipelines: Mapping[str, Pipeline],
        lease: ScopeLease,
        reader: LogReader,
        services: RunServices,
        returned: ReturnedRuns,
        stop: threading.Event,
    ) -> None:
        self._spark = spark
        self._pipelines = pipelines
        self._codes = {name: code_of(pipeline.function) for name, pipeline in pipelines.items() if pipeline.table is not None}
        self._scope = lease.scope
        self._incarnation = lease.incarnation
        self._epoch = lease.epoch
        self._reader = reader
        self._services = services
        self._stop = stop
        self._slots = threading.BoundedSemaphore(MAX_CONCURRENT_RUNS)
        self._frames: tuple[int, DataFrames] | None = None
        self._searches = Searches()
        self._returned = returned
        self._log = structlog.get_logger(__name__)

    def __call__(self, run: Run, *, alone: bool = False) -> Sequence[Run]:
        """Execute a run until it has an outcome: rows, a dead letter, or the parts that replace it, which are returned.

        `alone`: no other run is executed meanwhile, so that this run is the cause if Spark's JVM dies.

        Raises:
            StopRequested: The process must stop; the run stays open.
            JvmDied: Spark's JVM died.
            RunConflict: The table has other events for the run.
            TablesRefused: The service of the tables refuses a request.
            Fenced: This driver has lost its scope.
            ApiError: The API refuses to return the run's events.
        """
        with self._slots, self._services.running.run(run.batch, len(run.slice)):
            try:
                return self._outcome(run)
            except RunTooLarge as error:
                self._give_up(run, f"{error}\n{error.hint}")
                return []
            except JvmDied as error:
                if alone:
                    self._report(run, run.begun, datetime.now(UTC))(state="failed", finished=datetime.now(UTC), error=str(error))
                raise

    def _outcome(self, run: Run) -> Sequence[Run]:
        key = RunKey(run.table, run.pipeline, run.batch, run.part) if run.table else None
        digest = digest_of(self._events(run)) if key else ""
        # First, because a driver that died may have stored rows for a run that would now be given up or split.
        return [] if key and self._is_stored(run, key, digest) else self._executed(run, key, digest)

    def _is_stored(self, run: Run, key: RunKey, digest: str) -> bool:
        """Return whether the run's table has its rows. If so, report them."""
        try:
            stored = self._until_available(lambda: self._sink(run).stored(key, digest), "rows of a run")
        except TablesUnavailable as error:
            raise StopRequested("The pipeline was stopped before a run was compared with its table; it stays open.") from error
        if stored is None:
            return False
        now = datetime.now(UTC)
        self._report(run, stored.attempt, now)(state="succeeded", finished=now, rows=stored.rows, dead_letter=self._dead_letter(run))
        self._searches.succeeded(run)
        return True

    def _executed(self, run: Run, key: RunKey | None, digest: str) -> Sequence[Run]:
        """Execute a run without stored rows, or give it up, or split it and return its parts."""
        pipeline = self._pipelines.get(run.pipeline)
        if pipeline is None:
            self._give_up(run, f"The project has no pipeline {run.pipeline!r}: it was removed or renamed.")
            return []
        error = self._searches.given_up(run)
        if error is not None:
            self._searches.ended(run)
            self._give_up(run, f"Not attempted, since the pipeline failed on other events of its run: {error}")
            return []
        reason = _exhausted(pipeline, run)
        if reason is not None:
            if self._is_split(pipeline, run, reason):
                return self._split(run)
            self._give_up(run, reason)
            return []
        return self._execute(pipeline, run, key, digest)

    def _is_split(self, pipeline: Pipeline, run: Run, error: str) -> bool:
        """Record that a run failed permanently; return whether to attempt parts of it. Runs of a batch policy stay whole."""
        if pipeline.on_failure == "hold":
            return pipeline.batch == "micro" and self._returned.failed(run)
        return pipeline.batch == "micro" and self._searches.failed(run, error)

    def _split(self, run: Run) -> Sequence[Run]:
        """Replace a run by its parts, once the API has the reports of its attempts, or return it to the orderer."""
        if self._pipelines[run.pipeline].on_failure == "hold":
            self._returned.add(run)
            return []
        if not self._services.reporter.flush(self._stop.is_set):
            raise StopRequested("The pipeline was stopped before a run that failed was split; it stays open.")
        parts = parts_of(run)
        self._services.split(split_of(run, parts, self._epoch))
        self._log.info("run split", pipeline=run.pipeline, batch=run.batch, events=[len(part.slice) for part in parts])
        return parts

    def _give_up(self, run: Run, reason: str) -> None:
        """Report a run without an attempt as a dead letter."""
        dead_letter = self._dead_letter(run)
        now = datetime.now(UTC)
        self._report(run, run.begun + 1, now)(state="failed", finished=now, error=reason, dead_letter=dead_letter)
        self._log.warning("run given up", pipeline=run.pipeline, batch=run.batch, reason=reason, dead_letter=dead_letter)

    def _execute(self, pipeline: Pipeline, run: Run, key: RunKey | None, digest: str) -> Sequence[Run]:
        self._events(run)
        seqs = _seqs_text(run.slice.ranges)
        attempts = 1 if is_part(run) or self._returned.is_searched(run.pipeline) else pipeline.attempts
        for tried in range(1, attempts + 1):
            run.begun += 1
            attempt = Attempt(digest, run.begun, self._run_id(run, run.begun), self._codes.get(run.pipeline, ""))
            logged = run_log(attempt.run_id, pipeline=run.pipeline, batch=run.batch, attempt=attempt.number, seqs=seqs)
            with logged, self._services.run_lock.shared():
                end = self._attempt_once(pipeline, run, key, attempt, last=tried == attempts)
            if end is not _AttemptEnd.FAILED:
                return self._split(run) if end is _AttemptEnd.SPLIT else []
            if self._pause(min(FIRST_PAUSE_SECONDS * 4 ** (tried - 1), MAX_PAUSE_SECONDS)):
                raise StopRequested("The pipeline was stopped before a further attempt at a run, which stays open.")
        raise AssertionError("the last attempt ends a run")

    def _pause(self, seconds: float) -> bool:
        """Wait, and release the slot for a run of another pipeline meanwhile. Return whether the process must stop."""
        self._slots.release()
        try:
            return self._stop.wait(seconds)
        finally:
            self._slots.acquire()

    def _events(self, run: Run) -> pa.Table:
        """Return the run's events, which stay in memory."""
        if run.events is not None:
            return run.events
        try:
            run.events = self._reader.events(run.slice)
        except ApiError as error:
            if self._stop.is_set():
                raise StopRequested("The pipeline was stopped before a run had its events.") from error
            raise
        return run.events

    def _sink(self, run: Run) -> TableSink:
        return self._services.sinks[run.format]

    def _attempt_once(self, pipeline: Pipeline, run: Run, key: RunKey | None, attempt: Attempt, *, last: bool) -> _AttemptEnd:
        """Make one attempt at a run and report it; return how it ended."""
        report = self._report(run, attempt.number, datetime.now(UTC))
        report(state="running")
        try:
            rows = self._until_available(lambda: self._attempt(pipeline, run, key, attempt), "commit of a run")
        except (RunConflict, Fenced, TablesRefused):
            raise
        except BaseException as error:  # a user's function may raise anything, including KeyboardInterrupt
            if self._stop.is_set():
                raise StopRequested("The pipeline was stopped within a run, which stays open.") from error
            if jvm_died(self._spark):
                raise JvmDied(f"in the pipeline {run.pipeline!r}, in batch {run.batch}") from error
            failure = pipeline_error(run.pipeline, pipeline.function, error)
            last = last or isinstance(error, TypeConflict)
            text = f"{failure}\n{failure.hint}" if isinstance(error, TypeConflict) else str(failure)
            split = last and self._is_split(pipeline, run, text)
            dead_letter = self._dead_letter(run) if last and not split else None
            report(state="failed", finished=datetime.now(UTC), error=text, dead_letter=dead_letter)
            self._log.warning(
                "pipeline failed",
                pipeline=run.pipeline,
                batch=run.batch,
                attempt=attempt.number,
                error=text,
                dead_letter=dead_letter,
                exc_info=error,
            )
            return _AttemptEnd.SPLIT if split else _AttemptEnd.DONE if last else _AttemptEnd.FAILED
        report(state="succeeded", finished=datetime.now(UTC), rows=rows, dead_letter=self._dead_letter(run))
        self._searches.succeeded(run)
        self._returned.succeeded(run)
        return _AttemptEnd.DONE

    def _until_available(self, call: Callable[[], T], what: str) -> T:
        """Return the result of `call`, and repeat it while the service of the tables is unavailable. Raises as `retry_until_stopped`."""
        return retry_until_stopped(call, self._stop, what, TablesUnavailable)

    def _attempt(self, pipeline: Pipeline, run: Run, key: RunKey | None, attempt: Attempt) -> int | None:
        """Call the function; return the number of rows in its table, or None without a table."""
        parsed = self._services.payloads.apply(pipeline, run.events, self._frames_of(run.batch))
        table_run = None if key is None else TableRun(self._sink(run), key, attempt, size_of(run.events))
        with starting(f"{self._incarnation}/{run.name}/{run.batch}", self._services.starter):
            return call_pipeline(pipeline, parsed, table_run)

    def _frames_of(self, batch: int) -> DataFrames:
        """Return the DataFrames of a batch. Pipelines share those of the newest batch."""
        if self._frames is None or self._frames[0] != batch:
            self._frames = batch, DataFrames(self._spark)
        return self._frames[1]

    def _report(self, run: Run, attempt: int, started: datetime) -> Callable[..., None]:
        """Return a function that reports one attempt. The same attempt always has the same id."""
        base = RunReport(
            run_id=self._run_id(run, attempt),
            pipeline=run.pipeline,
            scope=self._scope,
            batch=run.batch,
            attempt=attempt,
            state="running",
            started=started,
            events=len(run.slice),
            seqs=run.slice.ranges,
            number=run.number,
        )
        return lambda **news: self._services.reporter.report(base.model_copy(update=news))

    def _run_id(self, run: Run, attempt: int) -> str:
        return run_id(self._incarnation, run.name, run.batch, attempt)

    def _dead_letter(self, run: Run) -> str:
        """Return the id of the run's dead letter, should it fail permanently: that of the dead letter that it retries, if any."""
        return run.dead_letter or str(uuid5(UUID(self._incarnation), f"{run.name}/{run.batch}"))


def _exhausted(pipeline: Pipeline, run: Run) -> str | None:
    """Return why a run of earlier drivers is not attempted again, or None if it is."""
    if run.ended >= (1 if is_part(run) else max(MAX_JVM_DEATHS, pipeline.attempts)):
        return f"{run.ended} attempts failed, or ended with Spark's JVM. See spark.log in the driver's home folder."
    if run.begun - run.ended >= MAX_CRASHES:
        return f"The driver's process ended in {run.begun - run.ended} attempts in a row. Was it out of memory?"
    return None


def _seqs_text(seqs: Ranges) -> str:
    """Return the events of a run for its log: `1-60,70`, up to 8 ranges."""
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in seqs[:_MAX_RANGES]]
    return ",".join(texts) + (",…" if len(seqs) > _MAX_RANGES else "")
