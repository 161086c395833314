"""The batch that the driver is at, for its heartbeats."""

from __future__ import annotations

import threading
import time

from headrace.wire.jobs import RunningBatch


class BatchUnderway:
    """Which batch of a scope runs just now; told by the query's thread, asked by the heart's."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._lock = threading.Lock()
        self._running: tuple[int, int, float] | None = None

    def begin(self, batch: int, events: int) -> None:
        """Tell of a batch that read so many events."""
        with self._lock:
            self._running = (batch, events, time.monotonic())

    def end(self) -> None:
        """Tell that no batch runs."""
        with self._lock:
            self._running = None

    def now(self) -> RunningBatch | None:
        """Return the batch that runs."""
        with self._lock:
            running = self._running
        if running is None:
            return None
        batch, events, began = running
        return RunningBatch(scope=self._scope, batch=batch, events=events, seconds=round(time.monotonic() - began, 3))
