"""The runs that the driver currently executes, for its heartbeats."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.wire.control.jobs import RunningBatch


class RunningRuns:
    """The running runs of a scope: changed by their threads, read by the heartbeat's thread."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._lock = threading.Lock()
        self._running: dict[int, tuple[int, int, float]] = {}

    @contextmanager
    def run(self, batch: int, events: int) -> Iterator[None]:
        """Record that this thread executes a run of a batch with this many events, while the block lasts."""
        thread = threading.get_ident()
        with self._lock:
            self._running[thread] = (batch, events, time.monotonic())
        try:
            yield
        finally:
            with self._lock:
                del self._running[thread]

    def now(self) -> RunningBatch | None:
        """Return the run that began first, or None."""
        with self._lock:
            if not self._running:
                return None
            batch, events, began = min(self._running.values(), key=lambda each: each[2])
        return RunningBatch(scope=self._scope, batch=batch, events=events, seconds=round(time.monotonic() - began, 3))
