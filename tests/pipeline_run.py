"""A pipeline process as a thread, and what it left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError
from headrace.pipeline.driver import run_pipeline
from headrace.pipeline.options import PipelineOptions
from headrace.project import Project
from headrace.wire.events import Cursor
from pipeline_kit import Api, until


@dataclass
class Running:
    """`run_pipeline` in a thread of its own."""

    project: Project
    options: PipelineOptions
    spark: SparkSession
    stop: threading.Event = field(default_factory=threading.Event)
    failure: HeadraceError | PySparkException | None = None

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        try:
            run_pipeline(self.project, self.options, self.stop, self.spark)
        except (HeadraceError, PySparkException) as error:
            self.failure = error

    def alive(self) -> bool:
        """Return whether it runs. A failure that ended it is told."""
        assert self.failure is None, repr(self.failure)
        return self.thread.is_alive()

    def until_committed(self, api: Api, seq: int) -> None:
        until(lambda: api.store.scopes.cursor(self.options.scope).cursor >= seq, f"committed up to {seq}", self.alive)

    def until_told(self, api: Api, condition: Callable[[Cursor], bool]) -> None:
        until(lambda: condition(api.store.scopes.cursor(self.options.scope)), "the cursor says so", self.alive)

    def until_failed(self) -> HeadraceError:
        self.thread.join(120)
        assert isinstance(self.failure, HeadraceError)
        return self.failure


@contextmanager
def running(project: Project, options: PipelineOptions, spark: SparkSession) -> Iterator[Running]:
    """Run the pipeline; it is asked to stop at the end, and its failure, if the test did not ask for it, fails the test."""
    run = Running(project, options, spark)
    run.thread.start()
    asked = run.failure
    try:
        yield run
        asked = run.failure
    finally:
        run.stop.set()
        run.thread.join(120)
    assert not run.thread.is_alive()
    assert run.failure is asked


def table(options: PipelineOptions, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table, a batch after the other."""
    rows: list[dict[str, Any]] = []
    for path in files(options, name):
        rows += pq.read_table(path).to_pylist()
    return rows


def files(options: PipelineOptions, name: str) -> list[Path]:
    return sorted((options.tables / name).glob("*.parquet"))


def commit_again(options: PipelineOptions, api: Api) -> int:
    """Put Spark's checkpoint back to just before it committed the last batch that had runs; return that batch."""
    batch = max(run.batch for run in api.runs())
    for folder, first in (("commits", batch), ("offsets", batch + 1)):
        for path in (options.checkpoint / folder).iterdir():
            if path.name.isdecimal() and int(path.name) >= first:
                path.unlink()
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return batch
