"""The timer of the task runs: it sleeps until the first of their waits is over, and is told when that changes."""

from __future__ import annotations

from threading import Condition, Thread
from types import TracebackType
from typing import Self

import structlog

from headrace.errors import ResourceError
from headrace.store.store import Store

MOST_SLEEP = 15.0  # seconds; another api may have begun a wait, and a worker's job may have ended
SECOND = 1_000_000


class Alarm:
    """A thread that sweeps the task runs of a store when there is something to sweep. A context manager."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = Condition()
        self._told = False
        self._over = False
        self._thread = Thread(target=self._run, name="headrace-alarm", daemon=True)
        self._log = structlog.get_logger(__name__)

    def __enter__(self) -> Self:
        self._forget = self._store.task_runs.bell.listen(self._tell)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._forget()
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def _tell(self) -> None:
        with self._changed:
            self._told = True
            self._changed.notify()

    def _run(self) -> None:
        while not self._over:
            sleep = self._sweep()
            with self._changed:
                self._changed.wait_for(lambda: self._told or self._over, sleep)
                self._told = False

    def _sweep(self) -> float:
        """Sweep; return for how many seconds there is nothing to do."""
        try:
            first = self._store.task_runs.sweep()
        except ResourceError as trouble:
            self._log.warning("task runs cannot be looked after just now", error=str(trouble))
            return 1.0
        if first is None:
            return MOST_SLEEP
        return min(MOST_SLEEP, max(0.0, (first - self._store.now()) / SECOND))
