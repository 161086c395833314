"""The batch that the driver is at, for its heartbeats."""

from __future__ import annotations

import threading
import time

from headrace.wire.jobs import RunningBatch


class BatchUnderway:
    """Which batch of a scope runs: written by the query's thread, read by the heartbeat's."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._changed = threading.Condition()
        self._running: tuple[int, int, float] | None = None

    def begin(self, batch: int, events: int) -> None:
        """Note that a batch of `events` has begun."""
        with self._changed:
            self._running = (batch, events, time.monotonic())

    def end(self) -> None:
        """Note that no batch runs."""
        with self._changed:
            self._running = None
            self._changed.notify_all()

    def wait_for_end(self, seconds: float) -> bool:
        """Wait at most `seconds` until no batch runs; return whether none runs."""
        with self._changed:
            return self._changed.wait_for(lambda: self._running is None, seconds)

    def now(self) -> RunningBatch | None:
        """Return the batch that runs."""
        with self._changed:
            running = self._running
        if running is None:
            return None
        batch, events, began = running
        return RunningBatch(scope=self._scope, batch=batch, events=events, seconds=round(time.monotonic() - began, 3))
