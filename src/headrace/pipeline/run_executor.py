"""Execute a planned run: call the pipeline, store what it returns, and report the outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID, uuid5

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import ApiError, Fenced, PipelineError, RunConflict, TypeConflict
from headrace.logs.targets import run_log
from headrace.pipeline.failures import JvmDied, jvm_died, pipeline_error
from headrace.pipeline.frames import Frames
from headrace.pipeline.log_reader import LogReader
from headrace.pipeline.payload import PayloadSchemas
from headrace.pipeline.ranges import Ranges
from headrace.pipeline.reporter import Reporter
from headrace.pipeline.run import Run, size_of
from headrace.pipeline.run_identity import Attempt, Place, digest_of
from headrace.pipeline.sink import TableSink
from headrace.pipeline.underway import RunsUnderway
from headrace.project import Pipeline, TableFormat
from headrace.tasks.starting import Starter, starting
from headrace.wire.runs import RunReport
from headrace.wire.scope_leases import ScopeLease

FIRST_PAUSE: Final = 0.5
"""Seconds before the second attempt of a pipeline that raised; four times as long before each further one, up to LONGEST_PAUSE."""
LONGEST_PAUSE: Final = 30.0
MAX_JVM_DEATHS: Final = 3
"""Attempts of a run that ended with Spark's JVM, or failed in drivers that have ended, after which it becomes a dead letter."""
MAX_CRASHES: Final = 10
"""Attempts of a run that ended with the driver's process, after which it becomes a dead letter."""
MAX_CONCURRENT_RUNS: Final = 8

_RANGES: Final = 8


class Stopped(PipelineError):
    """The pipeline was stopped; the run stays open."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the results of runs go, what starts the task runs that they request, and what the heartbeat tells of them."""

    sinks: Mapping[TableFormat, TableSink]
    payloads: PayloadSchemas
    reporter: Reporter
    starter: Starter
    underway: RunsUnderway


class RunExecutor:
    """Executes the runs of one scope; several threads may call it. What a table already has is not made again."""

    def __init__(
        self,
        spark: SparkSession,
        pipelines: Mapping[str, Pipeline],
        lease: ScopeLease,
        reader: LogReader,
        outputs: Outputs,
        stop: threading.Event,
    ) -> None:
        self._spark = spark
        self._pipelines = pipelines
        self._scope = lease.scope
        self._ids = UUID(lease.incarnation)
        self._reader = reader
        self._out = outputs
        self._stop = stop
        self._room = threading.BoundedSemaphore(MAX_CONCURRENT_RUNS)
        self._frames: tuple[int, Frames] | None = None
        self._log = structlog.get_logger(__name__)

    def __call__(self, run: Run) -> None:
        """Execute a run until it has an outcome: rows, or a dead letter.

        Raises:
            Stopped: The process is to end; the run stays open.
            JvmDied: Spark's JVM died.
            RunConflict: The table has other events for the run.
            Fenced: This driver has lost its scope.
            ApiError: The API refuses to give the run's events.
        """
        pipeline = self._pipelines.get(run.pipeline)
        if pipeline is None:
            return self._give_up(run, f"The project has no pipeline {run.pipeline!r}: it was removed or renamed.")
        if run.ended >= max(MAX_JVM_DEATHS, pipeline.attempts):
            return self._give_up(run, f"{run.ended} attempts failed, or ended with Spark's JVM. See spark.log in the driver's home folder.")
        if run.begun - run.ended >= MAX_CRASHES:
            return self._give_up(run, f"The driver's process ended in {run.begun - run.ended} attempts in a row. Was it out of memory?")
        with self._room, self._out.underway.run(run.batch, len(run.slice)):
            return self._execute(pipeline, run)

    def _give_up(self, run: Run, reason: str) -> None:
        """Report a run that is not executed as a dead letter."""
        letter = self._letter(run)
        now = datetime.now(UTC)
        self._report(run, run.begun + 1, now)(state="failed", finished=now, error=reason, letter=letter)
        self._log.warning("run given up", pipeline=run.pipeline, batch=run.batch, reason=reason, dead_letter=letter)

    def _execute(self, pipeline: Pipeline, run: Run) -> None:
        if run.events is None:
            run.events = self._read(run)
        place = Place(run.table, run.pipeline, run.batch, run.part) if run.table else None
        digest = digest_of(run.events) if place else ""
        stored = self._sink(run).stored(place, digest) if place else None
        if stored is not None:
            now = datetime.now(UTC)
            self._report(run, stored.attempt, now)(state="succeeded", finished=now, rows=stored.rows, letter=self._letter(run))
            return
        seqs = _shown(run.slice.ranges)
        for tried in range(1, pipeline.attempts + 1):
            run.begun += 1
            attempt = Attempt(digest, run.begun, self._run_id(run, run.begun))
            with run_log(attempt.run_id, pipeline=run.pipeline, batch=run.batch, attempt=attempt.number, seqs=seqs):
                if self._ends(pipeline, run, place, attempt, last=tried == pipeline.attempts):
                    return
            if self._stop.wait(min(FIRST_PAUSE * 4 ** (tried - 1), LONGEST_PAUSE)):
                raise Stopped("The pipeline was stopped before a further attempt at a run, which stays open.")

    def _read(self, run: Run) -> pa.Table:
        try:
            return self._reader.events(run.slice)
        except ApiError as error:
            if self._stop.is_set():
                raise Stopped("The pipeline was stopped before a run had its events.") from error
            raise

    def _sink(self, run: Run) -> TableSink:
        return self._out.sinks[run.format]

    def _ends(self, pipeline: Pipeline, run: Run, place: Place | None, attempt: Attempt, *, last: bool) -> bool:
        """Make one attempt at a run and report it; return whether the run has its outcome."""
        report = self._report(run, attempt.number, datetime.now(UTC))
        report(state="running")
        try:
            rows = self._attempt(pipeline, run, place, attempt)
        except (RunConflict, Fenced):
            raise
        except (Exception, SystemExit) as error:
            if self._stop.is_set():
                raise Stopped("The pipeline was stopped within a run, which stays open.") from error
            if jvm_died(self._spark):
                died = JvmDied(f"in the pipeline {run.pipeline!r}, in batch {run.batch}")
                report(state="failed", finished=datetime.now(UTC), error=str(died))
                raise died from error
            failure = pipeline_error(run.pipeline, pipeline.function, error)
            last = last or isinstance(error, TypeConflict)
            letter = self._letter(run) if last else None
            text = f"{failure}\n{failure.hint}" if isinstance(error, TypeConflict) else str(failure)
            report(state="failed", finished=datetime.now(UTC), error=text, letter=letter)
            self._log.warning(
                "pipeline failed",
                pipeline=run.pipeline,
                batch=run.batch,
                attempt=attempt.number,
                error=text,
                dead_letter=letter,
                exc_info=error,
            )
            return last
        report(state="succeeded", finished=datetime.now(UTC), rows=rows, letter=self._letter(run))
        return True

    def _attempt(self, pipeline: Pipeline, run: Run, place: Place | None, attempt: Attempt) -> int | None:
        """Call the function; return how many rows its table got, None without a table."""
        parsed = self._out.payloads.apply(pipeline, run.events, self._frames_of(run.batch))
        with starting(f"{self._ids}/{run.name}/{run.batch}", self._out.starter):
            result = pipeline.function(parsed)
        if place is None:
            if isinstance(result, DataFrame):
                raise PipelineError("it returns rows but has no table.", hint="Give it one: @project.pipeline(..., table='name').")
            return None
        if not isinstance(result, DataFrame):
            raise PipelineError(
                f"it fills the table {place.table!r} but returns {type(result).__name__}.", hint="Return a DataFrame from it."
            )
        return self._sink(run).store(place, attempt, result, size_of(run.events))

    def _frames_of(self, batch: int) -> Frames:
        """Return the DataFrames of a batch: those of the newest one are shared by its pipelines."""
        if self._frames is None or self._frames[0] != batch:
            self._frames = batch, Frames(self._spark)
        return self._frames[1]

    def _report(self, run: Run, attempt: int, started: datetime) -> Callable[..., None]:
        """Return what reports one attempt; the same attempt always has the same id."""
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
        return lambda **news: self._out.reporter.report(base.model_copy(update=news))

    def _run_id(self, run: Run, attempt: int) -> str:
        return str(uuid5(self._ids, f"{run.name}/{run.batch}/{attempt}"))

    def _letter(self, run: Run) -> str:
        """Return the dead letter that the run's events become if it fails for good: its own, where it tries one again."""
        return run.letter or str(uuid5(self._ids, f"{run.name}/{run.batch}"))


def _shown(seqs: Ranges) -> str:
    """Return the events of a run for its log: `1-60,70`, the first few ranges."""
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in seqs[:_RANGES]]
    return ",".join(shown) + (",…" if len(seqs) > _RANGES else "")
