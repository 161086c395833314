"""Run numpy functions as Spark tasks, and report progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from headrace.replay.inputs.parquet import ParquetParts

RESULT_SCHEMA: Final = "answer string"
_POLL: Final = 0.5


class Progress(Protocol):
    """Receives the progress of a replay."""

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Report that `done` tasks of a phase have ended."""


class Tasks:
    """Runs phases of a replay one after the other. A result is the return value of the task's function, decoded from JSON.

    When `stop` is set, the current phase is cancelled, which ends it with Spark's exception.
    """

    def __init__(self, spark: SparkSession, progress: Progress, stop: threading.Event) -> None:
        self._spark = spark
        self._stop = stop
        self._progress = progress

    def each(self, phase: str, count: int, function: Callable[[int], object]) -> list[Any]:
        """Call the function with 0 … count - 1, anywhere, and return the results in order."""
        numbers = self._spark.range(0, count, 1, count)
        return self._run(phase, count, numbers.mapInArrow(partial(_with_number, function), RESULT_SCHEMA))

    @property
    def cores(self) -> int:
        """How many tasks run concurrently, as far as Spark knows."""
        return self._spark.sparkContext.defaultParallelism

    def count(self, history: DataFrame | ParquetParts) -> int:
        """Return the number of partitions in which the history is read."""
        return len(history.parts) if isinstance(history, ParquetParts) else history.rdd.getNumPartitions()

    def partitions(
        self, phase: str, history: DataFrame | ParquetParts, function: Callable[[Iterable[pa.RecordBatch], int], object]
    ) -> list[Any]:
        """Call the function with the rows and the number of each partition, and return the results by number."""
        count = self.count(history)
        if isinstance(history, ParquetParts):
            return self.each(phase, count, partial(_reading, history, function))
        return self._run(phase, count, history.mapInArrow(partial(_with_rows, function), RESULT_SCHEMA))

    def _run(self, phase: str, count: int, answers: DataFrame) -> list[Any]:
        with self.watched(phase, count):
            rows = answers.collect()
        return [msgspec.json.decode(row["answer"]) for row in rows]

    @contextmanager
    def watched(self, phase: str, count: int) -> Iterator[None]:
        """Report the progress of the jobs that run in this block, which have `count` tasks. Cancel them if `stop` is set."""
        context = self._spark.sparkContext
        group = f"headrace replay: {phase}"
        context.setJobGroup(group, group, interruptOnCancel=True)
        over = threading.Event()

        def watch() -> None:
            tracker = context.statusTracker()
            while not over.wait(_POLL):
                if self._stop.is_set():
                    context.cancelJobGroup(group)
                jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
                stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
                self._progress(phase, sum(stage.numCompletedTasks for stage in stages if stage), count)

        self._progress(phase, 0, count)
        watcher = threading.Thread(target=watch, name="replay progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
        self._progress(phase, count, count)


def _with_number(function: Callable[[int], object], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield _answer(function(number))


def _reading(history: ParquetParts, function: Callable[[Iterable[pa.RecordBatch], int], object], number: int) -> object:
    return function(history.read(number), number)


def _with_rows(function: Callable[[Iterable[pa.RecordBatch], int], object], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this runs in a task of Spark")
    yield _answer(function(batches, context.partitionId()))


def _answer(answer: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"answer": pa.array([msgspec.json.encode(answer).decode()], pa.string())})
