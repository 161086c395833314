"""One batch of the query: order its events, call the pipelines, store what they return, report the runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID, uuid5

import structlog
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import Fenced, PipelineError, RunConflict, TypeConflict
from headrace.logs.targets import run_log
from headrace.pipeline.bounds import BatchBounds
from headrace.pipeline.courier import Courier
from headrace.pipeline.failures import JvmDied, jvm_died, pipeline_error
from headrace.pipeline.holdings import Holdings
from headrace.pipeline.orderer import Orderer
from headrace.pipeline.payload import PayloadSchemas
from headrace.pipeline.ranges import Ranges
from headrace.pipeline.run_identity import Attempt, Place
from headrace.pipeline.sink import TableSink
from headrace.pipeline.slices import Frames, Slice
from headrace.pipeline.underway import BatchUnderway
from headrace.project import TableFormat
from headrace.tasks.starting import Starter, starting
from headrace.wire.runs import RunReport

FIRST_PAUSE: Final = 0.5
"""Seconds before the second attempt of a pipeline that raised; four times as long before each further one, up to LONGEST_PAUSE."""
LONGEST_PAUSE: Final = 30.0
_RANGES: Final = 8


class Stopping(PipelineError):
    """The pipeline was asked to stop; its batch comes again."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a batch's results go, who starts the task runs that it asks for, and who tells that it runs."""

    sinks: Mapping[TableFormat, TableSink]
    payloads: PayloadSchemas
    courier: Courier
    starter: Starter
    underway: BatchUnderway


class BatchRunner:
    """What Spark calls with each batch. It may be called again with the same batch: what a table already has is kept.

    `held` gets what the scope holds after each batch, `begun` is the last batch begun; `failure` is the error the query stopped with, in
    words for people.
    """

    def __init__(self, orderer: Orderer, bounds: BatchBounds, scope: str, query_id: str, outputs: Outputs, stop: threading.Event) -> None:
        self._orderer = orderer
        self._bounds = bounds
        self._scope = scope
        self._query = UUID(query_id)
        self._out = outputs
        self._stop = stop
        self._log = structlog.get_logger(__name__)
        self.held: dict[int, Holdings] = {}
        self.begun: int | None = None
        self.failure: PipelineError | None = None

    def __call__(self, nothing: DataFrame, batch: int) -> None:
        """Handle one batch; its DataFrame is empty, and tells only the session."""
        self.begun = batch
        try:
            self._handle(nothing.sparkSession, batch)
        except PipelineError as error:
            self.failure = error
            raise
        finally:
            self._out.underway.end()

    def _handle(self, spark: SparkSession, batch: int) -> None:
        started = time.perf_counter()
        span = self._bounds(batch)
        self._out.underway.begin(batch, span.to - span.after)
        ordered = self._orderer.order(batch, span)
        frames = Frames(spark)
        for part in ordered.slices:
            self._run(part, frames, batch)
        if ordered.slices and not self._out.courier.flush(self._stop.is_set):
            raise Stopping("The pipeline was stopped before the api heard of its runs; the batch comes again, its tables stay.")
        seconds = round(time.perf_counter() - started, 3)
        held = ordered.holdings
        self.held[batch] = held.after(seconds)
        self._log.info(
            "batch handled", batch=batch, released=ordered.released, waiting=held.waiting, runs=len(ordered.slices), seconds=seconds
        )

    def _run(self, part: Slice, frames: Frames, batch: int) -> None:
        """Run one pipeline on its slice, unless its table already has that; what fails for good becomes a dead letter."""
        pipeline = part.pipeline
        place = Place(pipeline.table, pipeline.name, batch, part.part) if pipeline.table else None
        digest = part.digest if place else ""
        stored = self._out.sinks[pipeline.format].stored(place, digest) if place else None
        if stored is not None:
            now = datetime.now(UTC)
            self._report(part, batch, stored.attempt, now)(
                state="succeeded", finished=now, rows=stored.rows, letter=self._letter(part, batch)
            )
            return
        seqs = _shown(part.seqs)
        for attempt in range(1, pipeline.attempts + 1):
            with run_log(self._run_id(part, batch, attempt), pipeline=pipeline.name, batch=batch, attempt=attempt, seqs=seqs):
                if self._ends(part, frames, batch, Attempt(digest, attempt, self._run_id(part, batch, attempt))):
                    return
            if attempt < pipeline.attempts:
                self._stop.wait(min(FIRST_PAUSE * 4 ** (attempt - 1), LONGEST_PAUSE))

    def _ends(self, part: Slice, frames: Frames, batch: int, attempt: Attempt) -> bool:
        """Make one attempt at a run and report it; return whether it is the last one.

        Raises:
            RunConflict: The table has other events for the run: no fault of the pipeline's, and no dead letter.
            Fenced: This driver has lost its scope.
        """
        pipeline = part.pipeline
        report = self._report(part, batch, attempt.number, datetime.now(UTC))
        report(state="running")
        try:
            rows = self._attempt(part, frames, batch, attempt)
        except (RunConflict, Fenced):
            raise
        except (Exception, SystemExit) as error:
            if self._stop.is_set():
                raise Stopping("The pipeline was stopped within a batch, which comes again.") from error
            if jvm_died(frames.spark):
                raise JvmDied(f"in the pipeline {pipeline.name!r}, in batch {batch}") from error
            failure = pipeline_error(pipeline.name, pipeline.function, error)
            last = attempt.number == pipeline.attempts or isinstance(error, TypeConflict)
            letter = self._letter(part, batch) if last else None
            said = f"{failure}\n{failure.hint}" if isinstance(error, TypeConflict) else str(failure)
            report(state="failed", finished=datetime.now(UTC), error=said, letter=letter)
            self._log.warning(
                "pipeline failed",
                pipeline=pipeline.name,
                batch=batch,
                attempt=attempt.number,
                error=said,
                dead_letter=letter,
                exc_info=error,
            )
            return last
        report(state="succeeded", finished=datetime.now(UTC), rows=rows, letter=self._letter(part, batch))
        return True

    def _attempt(self, part: Slice, frames: Frames, batch: int, attempt: Attempt) -> int | None:
        """Call the function; return how many rows its table got, None without a table."""
        pipeline = part.pipeline
        parsed = self._out.payloads.apply(part, frames)
        with starting(f"{self._query}/{part.name}/{batch}", self._out.starter):
            result = pipeline.function(parsed)
        if pipeline.table is None:
            if isinstance(result, DataFrame):
                raise PipelineError("it returns rows but has no table.", hint="Give it one: @project.pipeline(..., table='name').")
            return None
        if not isinstance(result, DataFrame):
            raise PipelineError(
                f"it fills the table {pipeline.table!r} but returns {type(result).__name__}.", hint="Return a DataFrame from it."
            )
        place = Place(pipeline.table, pipeline.name, batch, part.part)
        return self._out.sinks[pipeline.format].store(place, attempt, result, part.size)

    def _report(self, part: Slice, batch: int, attempt: int, started: datetime) -> Callable[..., None]:
        """Return what reports one run; the same run always has the same id."""
        base = RunReport(
            run_id=self._run_id(part, batch, attempt),
            pipeline=part.pipeline.name,
            scope=self._scope,
            batch=batch,
            attempt=attempt,
            state="running",
            started=started,
            events=part.table.num_rows,
            seqs=part.seqs,
        )
        return lambda **news: self._out.courier.report(base.model_copy(update=news))

    def _run_id(self, part: Slice, batch: int, attempt: int) -> str:
        return str(uuid5(self._query, f"{part.name}/{batch}/{attempt}"))

    def _letter(self, part: Slice, batch: int) -> str:
        """Return the dead letter that the run's events become if it fails for good: the one that they are, where it is tried again."""
        return part.letter or str(uuid5(self._query, f"{part.name}/{batch}"))


def _shown(seqs: Ranges) -> str:
    """Return the events of a run for its log: `1-60,70`, the first few ranges."""
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in seqs[:_RANGES]]
    return ",".join(shown) + (",…" if len(seqs) > _RANGES else "")
