"""A pipeline process as a thread, and what it left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlalchemy import func, select

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiRefused, HeadraceError
from headrace.pipeline.driver import run_pipeline
from headrace.pipeline.options import PipelineOptions
from headrace.project import Project
from headrace.store.tables.pipelines import planned_runs
from headrace.wire.custody.events import Cursor
from headrace.wire.pipelines.runs import BatchEnded, RunReport
from support.pipelines.kit import Api, until
from support.pipelines.plans import stored_cursor


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

    def until_handled(self, api: Api, seq: int) -> None:
        """Wait until the scope has read up to `seq` and no run is open."""
        until(lambda: self._cursor(api).cursor >= seq and not open_runs(api), f"handled up to {seq}", self.alive)

    def until_told(self, api: Api, condition: Callable[[Cursor], bool]) -> None:
        until(lambda: condition(self._cursor(api)) and not open_runs(api), "the cursor says so", self.alive)

    def _cursor(self, api: Api) -> Cursor:
        return stored_cursor(api.store, self.options.scope)

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


def tables_of(options: PipelineOptions) -> Path:
    """Return the folder of the tables on the disk."""
    assert isinstance(options.tables, Path)
    return options.tables


def files(options: PipelineOptions, name: str) -> list[Path]:
    return sorted((tables_of(options) / name).glob("*.parquet"))


def open_runs(api: Api) -> int:
    """Return how many planned runs have no outcome."""
    with api.store.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(planned_runs)).scalar_one())


@contextmanager
def no_reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let drivers end before the API hears of a run: its rows are in the table, and it is open."""

    def refuse(client: PipelineClient, runs: Sequence[RunReport], ended: BatchEnded | None = None) -> None:
        if ended is None and all(run.state == "running" for run in runs):
            return  # a run that takes more than a moment
        raise ApiRefused("not now", problem="invalid")

    with monkeypatch.context() as patched:
        patched.setattr(PipelineClient, "report", refuse)
        yield
