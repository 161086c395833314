"""The open runs of a scope: one queue and one thread for each pipeline, which executes its runs in order.

A slow or retrying pipeline does not delay others. Beyond MAX_QUEUED_BYTES the events of a run stay in the log, not in
memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.pipeline.runs.run import Run

MAX_OPEN_RUNS: Final = 10_000
"""Open runs of one pipeline after which no further batch is planned."""
PLAN_SECONDS: Final = 1.0
"""How long the next batch waits for a pipeline to be ready. A slow pipeline delays the others by no more than this."""
MAX_QUEUED_BYTES: Final = 256 * 1024 * 1024
"""Bytes of events in memory whose runs are queued."""


@dataclass(slots=True)
class Batch:
    """A planned batch: the events that it read and released, its start (monotonic seconds), and its open runs."""

    number: int
    read: int
    released: int
    began: float
    open: int = 0
    bytes: int = 0
    runs: int = 0
    taken: bool = False
    """Whether a pipeline has begun a run of it."""
    done: bool = False
    """Whether a pipeline has ended a run of it."""


class RunQueues:
    """Executes runs with `execute`, which returns the runs that replace one. An error of `execute` ends the driver (`failure`).

    `ended` is called with each completed batch.
    """

    def __init__(self, execute: Callable[[Run], Sequence[Run]], ended: Callable[[Batch], None]) -> None:
        self._execute = execute
        self._ended = ended
        self._changed = threading.Condition()
        self._queues: dict[str, deque[tuple[Run, Batch]]] = {}
        self._threads: list[threading.Thread] = []
        self._newest: Batch | None = None
        self._bytes = 0
        self._stopping = False
        self.failure: BaseException | None = None

    def put(self, batch: Batch, runs: Sequence[Run]) -> None:
        """Queue the runs of a planned batch, in order."""
        batch.runs = batch.open = len(runs)
        if not runs:
            self._ended(batch)
            return
        with self._changed:
            batch.bytes = _bytes_of(runs)
            if self._bytes + batch.bytes > MAX_QUEUED_BYTES:
                batch.bytes = 0
                for run in runs:
                    run.events = None
            self._bytes += batch.bytes
            self._newest = batch
            for run in runs:
                self._queue(run.pipeline).append((run, batch))
            self._changed.notify_all()

    def wait_for_room(self, seconds: float) -> bool:
        """Wait up to `seconds` until no pipeline has too many open runs; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self.failure is not None or self._has_room(), seconds) and self.failure is None

    def idle(self, pipelines: Iterable[str]) -> set[str]:
        """Return the given pipelines without a queued run."""
        with self._changed:
            return {name for name in pipelines if not self._queues.get(name)}

    def wait_until_taken(self) -> None:
        """Wait until a pipeline has begun a run of the newest batch, or PLAN_SECONDS."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._newest is None or self._newest.taken, PLAN_SECONDS)

    def wait_until_ready(self) -> bool:
        """Wait until a pipeline has ended a run of the newest batch, or PLAN_SECONDS. Return False if there was nothing to wait for."""
        with self._changed:
            if self._newest is None or self._newest.done:
                return False
            self._changed.wait_for(lambda: self._is_over or self._newest is None or self._newest.done, PLAN_SECONDS)
            return True

    @property
    def _is_over(self) -> bool:
        return self._stopping or self.failure is not None

    def stop(self, seconds: float) -> None:
        """Begin no further run, and wait up to `seconds` for running ones."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _queue(self, pipeline: str) -> deque[tuple[Run, Batch]]:
        if pipeline not in self._queues:
            self._queues[pipeline] = deque()
            thread = threading.Thread(target=self._work, args=(self._queues[pipeline],), name=f"pipeline {pipeline}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self._queues[pipeline]

    def _has_room(self) -> bool:
        return all(len(queue) < MAX_OPEN_RUNS for queue in self._queues.values())

    def _work(self, queue: deque[tuple[Run, Batch]]) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self.failure is not None or queue)
                if self._stopping or self.failure is not None:
                    return
                run, batch = queue[0]
                batch.taken = True
                self._changed.notify_all()
            try:
                parts = self._execute(run)
            except BaseException as error:  # any error must reach the driver's thread
                with self._changed:
                    if self.failure is None:
                        self.failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                queue.popleft()
                queue.extendleft((part, batch) for part in reversed(parts))
                batch.open += len(parts) - 1
                batch.done = True
                done = not batch.open
                self._bytes -= batch.bytes if done else 0
                self._changed.notify_all()
            if done:
                self._ended(batch)


def _bytes_of(runs: Sequence[Run]) -> int:
    """Return the bytes of the events in memory. A table that several runs share counts once."""
    tables: dict[int, pa.Table] = {id(run.events): run.events for run in runs if run.events is not None}
    return sum(table.nbytes for table in tables.values())
