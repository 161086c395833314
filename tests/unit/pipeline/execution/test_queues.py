"""Each pipeline executes its runs in order, independently of other pipelines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import PipelineError
from headrace.pipeline.execution.queues import Batch, RunQueues
from headrace.pipeline.runs.run import Run
from headrace.pipeline.runs.slices import Slice

PATIENCE = 30.0


def run_of(pipeline: str, number: int, part: str = "", events: pa.Table | None = None) -> Run:
    slice = Slice(np.array([number + 1]), np.array([number + 1]), np.zeros(1, dtype=np.int8))
    return Run(number, 0, pipeline, part, None, "parquet", None, slice, events)


def batch(number: int) -> Batch:
    return Batch(number, 1, 1, time.monotonic())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Executor:
    """Notes the runs; those of `slow` wait until they may go on, and the first of `split` is replaced by parts.

    The last thread that ends a run of a batch tells of its end, so that batches of two pipelines end in any order.
    """

    def __init__(self) -> None:
        self.done: list[tuple[str, int, str]] = []
        self.going_on = threading.Event()
        self.ended: list[int] = []

    def __call__(self, run: Run) -> Sequence[Run]:
        if run.pipeline == "broken":
            raise PipelineError("no")
        if run.pipeline == "slow":
            assert self.going_on.wait(PATIENCE)
        self.done.append((run.pipeline, run.batch, run.part))
        if run.pipeline == "split" and run.batch == 1 and not run.part:
            return [run_of("split", 1, "0.0"), run_of("split", 1, "0.1")]
        return []

    def of(self, pipeline: str) -> list[tuple[int, str]]:
        return [(batch, part) for name, batch, part in self.done if name == pipeline]


@pytest.fixture
def executor() -> Executor:
    return Executor()


@pytest.fixture
def queues(executor: Executor) -> RunQueues:
    return RunQueues(executor, lambda batch: executor.ended.append(batch.number))


def test_a_slow_pipeline_does_not_delay_other_pipelines(executor: Executor, queues: RunQueues) -> None:
    for number in range(1, 4):
        queues.put(batch(number), [run_of("slow", number), run_of("quick", number)])
    until(lambda: len(executor.of("quick")) == 3)
    assert executor.of("slow") == []
    assert executor.ended == []
    executor.going_on.set()
    until(lambda: sorted(executor.ended) == [1, 2, 3])
    assert executor.of("slow") == executor.of("quick") == [(1, ""), (2, ""), (3, "")]
    queues.stop(PATIENCE)


def test_parts_of_a_run_are_executed_before_the_next_run(executor: Executor, queues: RunQueues) -> None:
    queues.put(batch(1), [run_of("split", 1)])
    queues.put(batch(2), [run_of("split", 2)])
    until(lambda: sorted(executor.ended) == [1, 2])
    assert executor.of("split") == [(1, ""), (1, "0.0"), (1, "0.1"), (2, "")]
    queues.stop(PATIENCE)


def test_a_batch_without_runs_has_ended(executor: Executor, queues: RunQueues) -> None:
    queues.put(batch(1), [])
    assert executor.ended == [1]
    assert not queues.wait_until_ready()


def test_a_failure_ends_all_queues_and_is_raised_to_the_driver(executor: Executor, queues: RunQueues) -> None:
    queues.put(batch(1), [run_of("broken", 1), run_of("slow", 1)])
    until(lambda: queues.failure is not None)
    assert not queues.wait_for_room(PATIENCE)
    queues.wait_until_taken()
    executor.going_on.set()
    queues.stop(PATIENCE)
    assert isinstance(queues.failure, PipelineError)
    assert executor.ended == []


def test_too_many_open_runs_of_one_pipeline_pause_planning(executor: Executor, queues: RunQueues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.execution.queues.MAX_OPEN_RUNS", 2)
    queues.put(batch(1), [run_of("slow", 1)])
    assert queues.wait_for_room(0)
    queues.put(batch(2), [run_of("slow", 2)])
    assert not queues.wait_for_room(0)
    executor.going_on.set()
    assert queues.wait_for_room(PATIENCE)
    queues.stop(PATIENCE)


def test_events_beyond_the_limit_are_not_held_in_memory(executor: Executor, queues: RunQueues, monkeypatch: pytest.MonkeyPatch) -> None:
    events = pa.table({"n": list(range(1_000))})
    monkeypatch.setattr("headrace.pipeline.execution.queues.MAX_QUEUED_BYTES", events.nbytes)
    kept, dropped = run_of("slow", 1, events=events), run_of("slow", 2, events=events)
    queues.put(batch(1), [kept, run_of("quick", 1, events=events)])  # a table that two runs share counts once
    queues.put(batch(2), [dropped])
    assert kept.events is events
    assert dropped.events is None
    executor.going_on.set()
    until(lambda: sorted(executor.ended) == [1, 2])
    queues.put(batch(3), [later := run_of("later", 3, events=events)])
    until(lambda: sorted(executor.ended) == [1, 2, 3])
    assert later.events is events
    queues.stop(PATIENCE)


def test_the_next_batch_waits_until_a_pipeline_is_ready_but_not_for_slow_pipelines(
    executor: Executor, queues: RunQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.put(batch(1), [run_of("slow", 1), run_of("quick", 1)])
    queues.wait_until_taken()
    queues.wait_until_ready()
    until(lambda: executor.of("quick") == [(1, "")])
    assert not queues.wait_until_ready(), "a pipeline is ready"
    monkeypatch.setattr("headrace.pipeline.execution.queues.PLAN_SECONDS", 0.01)
    queues.put(batch(2), [run_of("slow", 2)])
    queues.wait_until_taken()
    assert queues.wait_until_ready()
    executor.going_on.set()
    until(lambda: sorted(executor.ended) == [1, 2])
    queues.stop(PATIENCE)
