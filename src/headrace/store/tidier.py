"""Forgets, in the background, what was kept for long enough."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, Thread
from types import TracebackType
from typing import Self

import structlog

from headrace.store.retention import SWEEPS, Sweep
from headrace.store.store import Store

EVERY = 3600.0  # seconds between two rounds
REST = 0.05  # seconds between two transactions of a round: whoever works comes first
AT_ONCE = 500  # rows in one transaction
DAY = 86_400 * 1_000_000


class Tidier:
    """A thread that forgets what is older than so many days; with 0 it keeps all for ever. A context manager."""

    def __init__(self, store: Store, days: float, *, every: float = EVERY, sweeps: Sequence[Sweep] = SWEEPS) -> None:
        self._store = store
        self._days = days
        self._every = every
        self._sweeps = sweeps
        self._over = Event()
        self._thread = Thread(target=self._run, name="headrace-tidier", daemon=True)
        self._log = structlog.get_logger(__name__)

    def __enter__(self) -> Self:
        if self._days > 0:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._over.set()
        if self._days > 0:
            self._thread.join()

    def tidy(self) -> int:
        """Forget all that is old enough; return how many rows that were.

        Raises:
            ResourceError: The database is away.
        """
        before = self._store.now() - round(self._days * DAY)
        return sum(self._sweep(sweep, before) for sweep in self._sweeps)

    def tidy_all(self) -> float:
        """Forget what is old enough, each kind by itself; return how many seconds to wait before the next round."""
        before, gone, pause = self._store.now() - round(self._days * DAY), 0, self._every
        for sweep in self._sweeps:
            work = f"retention of {sweep.__name__.replace('_', ' ')}"
            try:
                gone += self._sweep(sweep, before)
            except Exception as error:
                pause = min(pause, self._store.background.record_failure(work, error))
            else:
                self._store.background.record_success(work)
        if gone:
            self._log.info("old rows deleted", rows=gone, retention_days=self._days)
        return pause

    def _sweep(self, sweep: Sweep, before: int) -> int:
        gone = 0
        while not self._over.is_set():
            now = self._store.tidy(lambda connection: sweep(connection, before, AT_ONCE))
            gone += now
            if now < AT_ONCE:
                break
            self._over.wait(REST)
        return gone

    def _run(self) -> None:
        while not self._over.is_set():
            self._over.wait(self.tidy_all())
