"""Execute a planned run: call the pipeline, store what it returns, and report the outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final
from uuid import UUID, uuid5

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame, SparkSession

from headrace.core.ranges import Ranges
from headrace.errors import ApiError, Fenced, PipelineError, RunConflict, RunTooLarge, TypeConflict
from headrace.logs.context import run_log
from headrace.pipeline.execution.bisection import Searches, is_part, parts_of, split_of
from headrace.pipeline.execution.reporter import Reporter
from headrace.pipeline.execution.returned_runs import ReturnedRuns
from headrace.pipeline.execution.running_runs import RunningRuns
from headrace.pipeline.log_reader import LogReader
from headrace.pipeline.payload.frames import Frames
from headrace.pipeline.payload.schemas import PayloadSchemas
from headrace.pipeline.runs.identity import Attempt, RunKey, digest_of, run_id
from headrace.pipeline.runs.run import Run, size_of
from headrace.pipeline.spark.errors import JvmDied, jvm_died, pipeline_error
from headrace.pipeline.tables.sink import TableSink
from headrace.project import Pipeline, TableFormat
from headrace.tasks.starter import Starter, starting
from headrace.wire.pipelines.plans import SplitRun
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.pipelines.scope_leases import ScopeLease

FIRST_PAUSE: Final = 0.5
"""Seconds before the second attempt of a pipeline that raised; four times as long before each further one, up to LONGEST_PAUSE."""
LONGEST_PAUSE: Final = 30.0
MAX_JVM_DEATHS: Final = 3
"""Attempts of a run after which it becomes a dead letter, where the last one ended with Spark's JVM while no other run was executed."""
MAX_CRASHES: Final = 10
"""Attempts of a run that ended with the driver's process, after which it becomes a dead letter."""
MAX_CONCURRENT_RUNS: Final = 8
"""Runs that are executed at once. One that waits for a further attempt is none of them."""

_RANGES: Final = 8


class _End(Enum):
    """How an attempt ended: with an outcome, with a failure before the last attempt, or with one after which the run is split."""

    DONE = auto()
    FAILED = auto()
    SPLIT = auto()


class StopRequested(PipelineError):
    """The pipeline was stopped; the run stays open."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the results of runs go, what starts the task runs that they request and splits runs, and what the heartbeat tells of them."""

    sinks: Mapping[TableFormat, TableSink]
    payloads: PayloadSchemas
    reporter: Reporter
    starter: Starter
    split: Callable[[SplitRun], None]
    underway: RunningRuns


class RunExecutor:
    """Executes the runs of one scope; several threads may call it. What a table already has is not made again."""

    def __init__(
        self,
        spark: SparkSession,
        pipelines: Mapping[str, Pipeline],
        lease: ScopeLease,
        reader: LogReader,
        outputs: Outputs,
        returned: ReturnedRuns,
        stop: threading.Event,
    ) -> None:
        self._spark = spark
        self._pipelines = pipelines
        self._scope = lease.scope
        self._incarnation = lease.incarnation
        self._epoch = lease.epoch
        self._reader = reader
        self._out = outputs
        self._stop = stop
        self._room = threading.BoundedSemaphore(MAX_CONCURRENT_RUNS)
        self._frames: tuple[int, Frames] | None = None
        self._searches = Searches()
        self._returned = returned
        self._log = structlog.get_logger(__name__)

    def __call__(self, run: Run, *, alone: bool = False) -> Sequence[Run]:
        """Execute a run until it has an outcome: rows, a dead letter, or parts that replace it, which are returned.

        `alone`: no other run is executed meanwhile, so that the death of Spark's JVM is this run's doing.

        Raises:
            Stopped: The process is to end; the run stays open.
            JvmDied: Spark's JVM died.
            RunConflict: The table has other events for the run.
            Fenced: This driver has lost its scope.
            ApiError: The API refuses to give the run's events.
        """
        with self._room, self._out.underway.run(run.batch, len(run.slice)):
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
        place = RunKey(run.table, run.pipeline, run.batch, run.part) if run.table else None
        digest = digest_of(self._events(run)) if place else ""
        # Before all else: a driver that died may have stored rows for a run to give up or split now.
        return [] if place and self._is_stored(run, place, digest) else self._executed(run, place, digest)

    def _is_stored(self, run: Run, place: RunKey, digest: str) -> bool:
        """Return whether the run's table has its rows, which are then reported."""
        stored = self._sink(run).stored(place, digest)
        if stored is None:
            return False
        now = datetime.now(UTC)
        self._report(run, stored.attempt, now)(state="succeeded", finished=now, rows=stored.rows, letter=self._letter(run))
        self._searches.succeeded(run)
        return True

    def _executed(self, run: Run, place: RunKey | None, digest: str) -> Sequence[Run]:
        """Execute a run that its table does not have, or give it up, or split it into the parts that are returned."""
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
        return self._execute(pipeline, run, place, digest)

    def _is_split(self, pipeline: Pipeline, run: Run, error: str) -> bool:
        """Note that a run failed for good; return whether to attempt parts of it. A batch policy's runs stay whole."""
        if pipeline.on_failure == "hold":
            return pipeline.batch == "micro" and self._returned.failed(run)
        return pipeline.batch == "micro" and self._searches.failed(run, error)

    def _split(self, run: Run) -> Sequence[Run]:
        """Replace a run by parts of it, once the API has the reports of its attempts; or return it to be planned again in parts."""
        if self._pipelines[run.pipeline].on_failure == "hold":
            self._returned.add(run)
            return []
        if not self._out.reporter.flush(self._stop.is_set):
            raise StopRequested("The pipeline was stopped before a run that failed was split; it stays open.")
        parts = parts_of(run)
        self._out.split(split_of(run, parts, self._epoch))
        self._log.info("run split", pipeline=run.pipeline, batch=run.batch, events=[len(part.slice) for part in parts])
        return parts

    def _give_up(self, run: Run, reason: str) -> None:
        """Report a run that is not executed as a dead letter."""
        letter = self._letter(run)
        now = datetime.now(UTC)
        self._report(run, run.begun + 1, now)(state="failed", finished=now, error=reason, letter=letter)
        self._log.warning("run given up", pipeline=run.pipeline, batch=run.batch, reason=reason, dead_letter=letter)

    def _execute(self, pipeline: Pipeline, run: Run, place: RunKey | None, digest: str) -> Sequence[Run]:
        self._events(run)
        seqs = _shown(run.slice.ranges)
        attempts = 1 if is_part(run) or self._returned.is_searched(run.pipeline) else pipeline.attempts
        for tried in range(1, attempts + 1):
            run.begun += 1
            attempt = Attempt(digest, run.begun, self._run_id(run, run.begun))
            with run_log(attempt.run_id, pipeline=run.pipeline, batch=run.batch, attempt=attempt.number, seqs=seqs):
                end = self._end(pipeline, run, place, attempt, last=tried == attempts)
            if end is not _End.FAILED:
                return self._split(run) if end is _End.SPLIT else []
            if self._pause(min(FIRST_PAUSE * 4 ** (tried - 1), LONGEST_PAUSE)):
                raise StopRequested("The pipeline was stopped before a further attempt at a run, which stays open.")
        raise AssertionError("the last attempt ends a run")

    def _pause(self, seconds: float) -> bool:
        """Wait, with room for a run of another pipeline; return whether the process is to end."""
        self._room.release()
        try:
            return self._stop.wait(seconds)
        finally:
            self._room.acquire()

    def _events(self, run: Run) -> pa.Table:
        """Return the run's events, which are in memory from then on."""
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
        return self._out.sinks[run.format]

    def _end(self, pipeline: Pipeline, run: Run, place: RunKey | None, attempt: Attempt, *, last: bool) -> _End:
        """Make one attempt at a run, report it, and return how it ended."""
        report = self._report(run, attempt.number, datetime.now(UTC))
        report(state="running")
        try:
            rows = self._attempt(pipeline, run, place, attempt)
        except (RunConflict, Fenced):
            raise
        except BaseException as error:  # a user's function may raise anything, also KeyboardInterrupt
            if self._stop.is_set():
                raise StopRequested("The pipeline was stopped within a run, which stays open.") from error
            if jvm_died(self._spark):
                raise JvmDied(f"in the pipeline {run.pipeline!r}, in batch {run.batch}") from error
            failure = pipeline_error(run.pipeline, pipeline.function, error)
            last = last or isinstance(error, TypeConflict)
            text = f"{failure}\n{failure.hint}" if isinstance(error, TypeConflict) else str(failure)
            split = last and self._is_split(pipeline, run, text)
            letter = self._letter(run) if last and not split else None
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
            return _End.SPLIT if split else _End.DONE if last else _End.FAILED
        report(state="succeeded", finished=datetime.now(UTC), rows=rows, letter=self._letter(run))
        self._searches.succeeded(run)
        self._returned.succeeded(run)
        return _End.DONE

    def _attempt(self, pipeline: Pipeline, run: Run, place: RunKey | None, attempt: Attempt) -> int | None:
        """Call the function; return how many rows its table got, None without a table."""
        parsed = self._out.payloads.apply(pipeline, run.events, self._frames_of(run.batch))
        with starting(f"{self._incarnation}/{run.name}/{run.batch}", self._out.starter):
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
        return run_id(self._incarnation, run.name, run.batch, attempt)

    def _letter(self, run: Run) -> str:
        """Return the dead letter that the run's events become if it fails for good: its own, where it tries one again."""
        return run.letter or str(uuid5(UUID(self._incarnation), f"{run.name}/{run.batch}"))


def _exhausted(pipeline: Pipeline, run: Run) -> str | None:
    """Return why a run that earlier drivers attempted is not attempted again, None where it is."""
    if run.ended >= (1 if is_part(run) else max(MAX_JVM_DEATHS, pipeline.attempts)):
        return f"{run.ended} attempts failed, or ended with Spark's JVM. See spark.log in the driver's home folder."
    if run.begun - run.ended >= MAX_CRASHES:
        return f"The driver's process ended in {run.begun - run.ended} attempts in a row. Was it out of memory?"
    return None


def _shown(seqs: Ranges) -> str:
    """Return the events of a run for its log: `1-60,70`, the first few ranges."""
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in seqs[:_RANGES]]
    return ",".join(shown) + (",…" if len(seqs) > _RANGES else "")
