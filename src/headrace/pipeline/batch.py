"""One batch of the query: route its events, call the pipelines, store what they return, report the runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID, uuid5

import structlog
from pyspark.sql import DataFrame

from headrace.errors import PipelineError
from headrace.logs.targets import run_log
from headrace.pipeline.courier import Courier
from headrace.pipeline.failures import pipeline_error
from headrace.pipeline.ordering import events_of
from headrace.pipeline.payload import PayloadSchemas, parse
from headrace.pipeline.routing import Holdings, Slice, route
from headrace.pipeline.schemas import ORDERED_BLOCKS
from headrace.pipeline.sink import TableSink
from headrace.project import Pipeline
from headrace.tasks.starting import Starter, starting
from headrace.wire.runs import RunReport

PAUSES: Final = (0.5, 2.0)
"""Seconds before the second and the third attempt of a pipeline that raised."""
_RANGES: Final = 8


class Stopping(PipelineError):
    """The pipeline was asked to stop; its batch comes again."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a batch's results go, and who starts the task runs that it asks for."""

    sink: TableSink
    payloads: PayloadSchemas
    courier: Courier
    starter: Starter


class BatchRunner:
    """What Spark calls with each batch. It may be called again with the same batch: what a table already has is kept.

    `held` gets what the ordering holds after each batch; `failure` is the error the query stopped with, in words for people.
    """

    def __init__(self, pipelines: Iterable[Pipeline], scope: str, query_id: str, outputs: Outputs, stop: threading.Event) -> None:
        self._pipelines = list(pipelines)
        self._scope = scope
        self._query = UUID(query_id)
        self._out = outputs
        self._stop = stop
        self._log = structlog.get_logger(__name__)
        self.held: dict[int, Holdings] = {}
        self.failure: PipelineError | None = None

    def __call__(self, ordered: DataFrame, batch: int) -> None:
        """Handle one batch of ORDERED_BLOCKS."""
        ordered = ordered.select(*ORDERED_BLOCKS.names).persist()
        try:
            self._handle(ordered, batch)
        except PipelineError as error:
            self.failure = error
            raise
        finally:
            ordered.unpersist()

    def _handle(self, ordered: DataFrame, batch: int) -> None:
        started = time.perf_counter()
        (head,) = ordered.drop("block").collect()
        held = Holdings(*[head[name] for name in Holdings.__dataclass_fields__])
        slices = route(bytes(head["index"]), self._pipelines) if held.released else []
        if slices:
            events = events_of(ordered).persist()
            try:
                for part in slices:
                    self._run(part, events, batch)
            finally:
                events.unpersist()
            if not self._out.courier.flush(self._stop.is_set):
                raise Stopping("The pipeline was stopped before the api heard of its runs; the batch comes again, its tables stay.")
        self.held[batch] = held
        seconds = round(time.perf_counter() - started, 3)
        self._log.info("batch handled", batch=batch, released=held.released, waiting=held.waiting, pipelines=len(slices), seconds=seconds)

    def _run(self, part: Slice, events: DataFrame, batch: int) -> None:
        """Run one pipeline on its slice, unless its table already has that."""
        pipeline = part.pipeline
        stored = self._out.sink.stored(pipeline.table, pipeline.name, batch) if pipeline.table else None
        if stored is not None:
            now = datetime.now(UTC)
            self._report(part, batch, stored.attempt, now)(state="succeeded", finished=now, rows=stored.rows)
            return
        for attempt in range(1, len(PAUSES) + 2):
            with run_log(self._run_id(part, batch, attempt), pipeline=pipeline.name, batch=batch, attempt=attempt, seqs=_ranges(part)):
                if self._succeeds(part, events, batch, attempt):
                    return
            self._stop.wait(PAUSES[attempt - 1])

    def _succeeds(self, part: Slice, events: DataFrame, batch: int, attempt: int) -> bool:
        """Make one attempt at a run and report it; whether it went well. Raises what its pipeline failed with if it was the last."""
        pipeline = part.pipeline
        report = self._report(part, batch, attempt, datetime.now(UTC))
        report(state="running")
        try:
            rows = self._attempt(part, events, batch, attempt)
        except (Exception, SystemExit) as error:
            if self._stop.is_set():
                raise Stopping("The pipeline was stopped within a batch, which comes again.") from error
            failure = pipeline_error(pipeline.name, pipeline.function, error)
            report(state="failed", finished=datetime.now(UTC), error=str(failure))
            self._log.warning("pipeline failed", pipeline=pipeline.name, batch=batch, attempt=attempt, error=str(failure), exc_info=error)
            if attempt > len(PAUSES):
                raise failure from error
            return False
        report(state="succeeded", finished=datetime.now(UTC), rows=rows)
        return True

    def _attempt(self, part: Slice, events: DataFrame, batch: int, attempt: int) -> int | None:
        """Call the function; return how many rows its table got, None without a table."""
        pipeline = part.pipeline
        mine = part.of(events)
        schema = pipeline.payload if pipeline.payload is not None else self._out.payloads.learn(pipeline.name, mine)
        with starting(f"{self._query}/{pipeline.name}/{batch}", self._out.starter):
            result = pipeline.function(parse(mine, schema))
        if pipeline.table is None:
            if isinstance(result, DataFrame):
                raise PipelineError("it returns rows but has no table.", hint="Give it one: @project.pipeline(..., table='name').")
            return None
        if not isinstance(result, DataFrame):
            raise PipelineError(
                f"it fills the table {pipeline.table!r} but returns {type(result).__name__}.", hint="Return a DataFrame from it."
            )
        return self._out.sink.store(pipeline.table, pipeline.name, batch, attempt, result)

    def _report(self, part: Slice, batch: int, attempt: int, started: datetime) -> Callable[..., None]:
        """Return what reports one run; the same run always has the same id."""
        name = part.pipeline.name
        base = RunReport(
            run_id=self._run_id(part, batch, attempt),
            pipeline=name,
            scope=self._scope,
            batch=batch,
            attempt=attempt,
            state="running",
            started=started,
            events=part.events,
            seqs=part.seqs,
        )
        return lambda **news: self._out.courier.report(base.model_copy(update=news))

    def _run_id(self, part: Slice, batch: int, attempt: int) -> str:
        return str(uuid5(self._query, f"{part.pipeline.name}/{batch}/{attempt}"))


def _ranges(part: Slice) -> str:
    """Return the events of a run for its log: `1-60,70`, the first few ranges."""
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in part.seqs[:_RANGES]]
    return ",".join(shown) + (",…" if len(part.seqs) > _RANGES else "")
