"""Order the events of a test and run a project's pipelines on them, with the driver's own parts and a clock that the test moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.client.pipeline import PipelineClient
from headrace.pipeline.execution.executor import RunExecutor, RunServices
from headrace.pipeline.execution.reporter import Reporter
from headrace.pipeline.execution.returned_runs import ReturnedRuns
from headrace.pipeline.execution.run_lock import RunLock
from headrace.pipeline.execution.running_runs import RunningRuns
from headrace.pipeline.log_reader import LogReader
from headrace.pipeline.ordering.bounds import MAX_REDELIVERIES, Bounds
from headrace.pipeline.ordering.orderer import Orderer
from headrace.pipeline.payload.schemas import PayloadSchemas, schemas_folder
from headrace.pipeline.runs.identity import Origin
from headrace.pipeline.runs.run import Run
from headrace.pipeline.spark.code_shipping import ship_functions
from headrace.pipeline.tables.sinks import open_sinks
from headrace.pipeline.task_starter import TaskStarter
from headrace.pipeline_declaration import Pipeline
from headrace.project import Project
from headrace.wire.calls.execution import ACQUIRE_SCOPE, SPLIT_RUN, WAIT_FOR_EVENTS
from headrace.wire.pipelines.scope_leases import AcquireScope

MAX_BATCH_EVENTS: Final = 20_000
_MICROS: Final = 1_000_000
_ALL: Final = Pipeline("headrace.testing", ("*",), lambda _: None, None, None, "micro", 1)
"""Receives every released event in order. It is planned, and never called."""


class _NoWait(threading.Event):
    """A stop request that never comes, and that nothing waits for: attempts at a run follow each other without a pause."""

    def wait(self, timeout: float | None = None) -> bool:
        """Return immediately."""
        del timeout
        return self.is_set()


@dataclass(slots=True)
class PipelineRun:
    """The scope of one project. `events` has the released events so far, in order; `held` is the number of events that batching holds."""

    client: PipelineClient
    scope: str
    reader: LogReader
    orderer: Orderer
    execute: RunExecutor | None
    reporter: Reporter
    returned: ReturnedRuns
    names: set[str]
    events: list[dict[str, Any]]
    held: int = 0
    clock: int = 0

    def step(self, seconds: float = 0.0) -> None:
        """Advance the scope's clock, then order what the log has and execute the planned runs until there are none."""
        self.clock += int(seconds * _MICROS)
        while (bounds := self._bounds()) is not None:
            ordered = self.orderer.order(bounds, self.names, self.returned.take())
            self.client.plan(self.scope, ordered.plan)
            self.held = 0 if ordered.plan.cursor.report is None else ordered.plan.cursor.report.held
            for run in ordered.runs:
                self._take(run)
            self.reporter.flush(lambda: False)

    def _bounds(self) -> Bounds | None:
        """Return the bounds of the next batch, or None if nothing has changed."""
        at = self.orderer.at
        news = self.client.request(WAIT_FOR_EVENTS, None, query={"after": 0, "after_redelivery_id": 0, "wait": 0.0})
        to = min(max(news.head, at.seq), at.seq + self.orderer.max_events)
        last_redelivery_id = min(max(news.last_redelivery_id, at.last_redelivery_id), at.last_redelivery_id + MAX_REDELIVERIES)
        unchanged = (to, last_redelivery_id, self.clock) == (at.seq, at.last_redelivery_id, at.clock)
        if unchanged and not len(self.returned) and not self.orderer.has_free:
            return None
        return Bounds(at.seq, to, at.last_redelivery_id, last_redelivery_id, time.time_ns() // 1000, self.clock)

    def _take(self, run: Run) -> None:
        if run.pipeline == _ALL.name:
            events: pa.Table = run.events if run.events is not None else self.reader.events(run.slice)
            self.events += events.to_pylist()
            return
        runs = [run]
        while runs and self.execute is not None:
            runs = [*self.execute(runs[0]), *runs[1:]]


@contextmanager
def open_scope(
    project: Project, client: PipelineClient, tables: Path, spark: SparkSession | None, lookback: float
) -> Iterator[PipelineRun]:
    """Begin a scope of the project. Without `spark`, it orders events and runs no pipeline. `lookback`: in seconds."""
    pipelines: Mapping[str, Pipeline] = {} if spark is None else project.pipelines
    stop = _NoWait()
    ship_functions(pipeline.function for pipeline in pipelines.values())
    lease = client.request(ACQUIRE_SCOPE, AcquireScope(begin=1), scope=project.name)
    with Reporter(client) as reporter, LogReader(client, stop, MAX_BATCH_EVENTS) as reader:
        returned = ReturnedRuns()
        execute = None
        if spark is not None:
            spark.conf.set("spark.headrace.tables", str(tables))
            outputs = RunServices(
                open_sinks(pipelines.values(), tables, Origin(lease.log, lease.scope, lease.incarnation)),
                PayloadSchemas(schemas_folder(tables, project.name)),
                reporter,
                TaskStarter(client, stop),
                lambda split: client.request(SPLIT_RUN, split, scope=project.name),
                RunningRuns(project.name),
                RunLock(),
            )
            execute = RunExecutor(spark, pipelines, lease, reader, outputs, returned, stop)
        orderer = Orderer([_ALL, *pipelines.values()], reader, lease, {}, lookback=int(lookback * _MICROS), max_rows=MAX_BATCH_EVENTS)
        yield PipelineRun(client, project.name, reader, orderer, execute, reporter, returned, set(pipelines), [])
