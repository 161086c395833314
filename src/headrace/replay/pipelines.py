"""Run a project's pipelines on an ordered history: unchanged functions, with tables in the replay's own folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import MissingField
from headrace.pipeline.payload.schemas import PayloadSchemas, parse
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey
from headrace.pipeline.schemas import EVENTS
from headrace.pipeline.spark.errors import pipeline_error
from headrace.pipeline.tables.sink import TableSink
from headrace.pipeline.tables.sinks import open_sinks
from headrace.pipeline.tables.table_runs import TableRun, call_pipeline
from headrace.pipeline_declaration import Pipeline
from headrace.replay.options import HistoryColumns
from headrace.replay.raw_events import LANE, RawEvents, Replayed, replayed
from headrace.replay.schemas import MARK
from headrace.streams.watches import WatchSet
from headrace.triggers.watch import WatchTrigger

_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Time of events without one."""


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """The results of a pipeline: calls, events received, rows in its table."""

    pipeline: str
    batches: int
    events: int
    rows: int


class PipelineReplay:
    """Runs pipelines on an ordered history, file by file. Their tables are in `tables`."""

    def __init__(self, spark: SparkSession, watches: Mapping[str, WatchTrigger], tables: Path, work: Path) -> None:
        self._spark = spark
        self._watches = {name: trigger.serialize()[1] for name, trigger in watches.items()}
        self._tables = tables
        self._payloads = PayloadSchemas(work / "payloads")
        spark.conf.set("spark.headrace.tables", str(tables))

    def run(self, pipelines: Iterable[Pipeline], events: RawEvents, on_progress: Callable[[str, int, int], None]) -> list[PipelineResult]:
        """Call every pipeline with its events of each file, in order. Raises `PipelineError`."""
        results = {pipeline.name: PipelineResult(pipeline.name, 0, 0, 0) for pipeline in pipelines}
        by_name = {pipeline.name: pipeline for pipeline in pipelines}
        replay = f"replay-{uuid4().hex}"  # a scope of its own, because replays may share tables
        sinks = open_sinks(by_name.values(), self._tables, Origin(replay, replay, replay))
        parts = events.parts()
        for batch, part in enumerate(parts):
            on_progress("pipelines", batch, len(parts))
            frame = self._events(part, events.names).persist()
            try:
                for name, pipeline in by_name.items():
                    results[name] = self._call(pipeline, frame, batch, results[name], sinks[pipeline.format])
            finally:
                frame.unpersist()
        on_progress("pipelines", len(parts), len(parts))
        return list(results.values())

    def _events(self, part: Path, names: HistoryColumns) -> DataFrame:
        rows = self._spark.read.parquet(part.absolute().as_uri()).coalesce(1)
        return rows.mapInArrow(partial(_events, self._watches, names), EVENTS)

    def _call(self, pipeline: Pipeline, events: DataFrame, batch: int, before: PipelineResult, sink: TableSink) -> PipelineResult:
        taken = [sf.lit(name) for name in self._watches if pipeline.takes(name)]
        mine = events.where(sf.arrays_overlap("triggers", sf.array(*taken))) if taken else events.limit(0)
        count = mine.count()
        if not count:
            return before
        try:
            schema = pipeline.payload if pipeline.payload is not None else self._payloads.learn(pipeline, mine)
            run = None if pipeline.table is None else TableRun(sink, RunKey(pipeline.table, pipeline.name, batch), Attempt(""), count)
            rows = call_pipeline(pipeline, parse(mine, schema), run)
        except Exception as error:
            raise pipeline_error(pipeline.name, pipeline.function, error) from error
        return PipelineResult(pipeline.name, before.batches + 1, before.events + count, before.rows + (rows or 0))


def _events(watches: Mapping[str, Mapping[str, Any]], names: HistoryColumns, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of an ordered history -> EVENTS, with the triggers that would have fired, without events that match no watch."""
    triggers = list(watches)
    watch_set = WatchSet({number: WatchTrigger(**kwargs) for number, kwargs in enumerate(watches.values())})
    schema = to_arrow_schema(EVENTS, timezone="UTC")
    for batch in batches:
        marks = batch.column(MARK).to_pylist()
        rows = [_row(event, mark, watch_set, triggers) for event, mark in zip(replayed(batch, names), marks, strict=True)]
        yield pa.RecordBatch.from_pylist([row for row in rows if row is not None], schema=schema)


def _row(event: Replayed, mark: str | None, watch_set: WatchSet, triggers: Sequence[str]) -> dict[str, Any] | None:
    """Return an event as a pipeline gets it, with the fields of its first matching watch; or None if none matches or a field is missing."""
    match = watch_set.match(event.raw, LANE, event.position)
    if not match.groups:
        return None
    try:
        fields = match.groups[0][0].extract(match.value, stream=LANE, lane=LANE, position=event.position)
    except MissingField:
        return None
    occurred = fields.occurred or event.occurred or _NO_TIME
    return {
        "position": event.position,
        "seq": event.position,
        "mark": mark,
        **fields._asdict(),
        "occurred": occurred,
        "received": occurred,
        "payload": event.raw.data.decode(),
        "triggers": [triggers[number] for _, numbers in match.groups for number in numbers],
    }
