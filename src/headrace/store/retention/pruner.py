"""Delete expired rows in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Thread
from types import TracebackType
from typing import Self, TypeVar

import structlog
from sqlalchemy import Connection

from headrace.store.db.ages import AgeLimit, old_enough, prune_marks
from headrace.store.retention.event_log import event_keys, logged_events
from headrace.store.retention.retention import SWEEPS, Sweep
from headrace.store.store import Store

T = TypeVar("T")

INTERVAL_SECONDS = 3600.0  # seconds between two rounds
PAUSE_SECONDS = 0.05  # seconds between two transactions of a round, so that other writers come first
BATCH_ROWS = 500  # rows in one transaction
DAY = 86_400 * 1_000_000


class Pruner:
    """A thread that deletes rows older than the retention in days; 0 retains everything. A context manager."""

    def __init__(self, store: Store, days: float, *, interval_seconds: float = INTERVAL_SECONDS, sweeps: Sequence[Sweep] = SWEEPS) -> None:
        self._store = store
        self._days = days
        self._interval_seconds = self._pause = interval_seconds
        self._sweeps = sweeps
        self._over = Event()
        self._thread = Thread(target=self._run, name="headrace-pruner", daemon=True)
        self._log = structlog.get_logger(__name__)

    def __enter__(self) -> Self:
        if self._days > 0:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._over.set()
        if self._days > 0:
            self._thread.join()

    def prune(self) -> int:
        """Delete all expired rows; return their number.

        Raises:
            ResourceError: The database is unavailable.
        """
        old = self._old()
        return sum(self._sweep(sweep, old.before) for sweep in self._sweeps) + self._sweep_log(old) + self._sweep(event_keys, old.keys)

    def run_round(self) -> float:
        """Delete expired rows, each kind separately; return the seconds to wait before the next round."""
        self._pause, deleted = self._interval_seconds, 0
        old = self._attempt("retention", self._old, None)
        if old is not None:
            for sweep in self._sweeps:
                deleted += self._attempt(f"retention of {sweep.__name__.replace('_', ' ')}", partial(self._sweep, sweep, old.before), 0)
            deleted += self._attempt("retention of events", partial(self._sweep_log, old), 0)
            deleted += self._attempt("retention of event keys", partial(self._sweep, event_keys, old.keys), 0)
        if deleted:
            self._log.info("old rows deleted", rows=deleted, retention_days=self._days)
        return self._pause

    def _attempt(self, work: str, step: Callable[[], T], otherwise: T) -> T:
        """Run one sweep. If it fails for any reason, it is retried soon, and the other sweeps continue."""
        try:
            answer = step()
        except Exception as error:
            self._pause = min(self._pause, self._store.background.record_failure(work, error))
            return otherwise
        self._store.background.record_success(work)
        return answer

    def _old(self) -> AgeLimit:
        """Return the limit of expired rows, by an age that does not depend on the wall clock."""
        max_age = round(self._days * DAY)

        def work(connection: Connection) -> AgeLimit:
            now = self._store.now()
            age = self._store.ages.mark(connection, now)
            prune_marks(connection, age, max_age)
            old = old_enough(connection, age, now, max_age)
            self._store.background.record_lag(now - max_age - old.before)
            return old

        return self._store.write(work)

    def _sweep_log(self, old: AgeLimit) -> int:
        deleted, after = 0, 0
        while not self._over.is_set():
            swept = self._store.write(partial(logged_events, old=old, limit=BATCH_ROWS, after=after))
            deleted += swept.rows
            if swept.done:
                break
            after = swept.position
            self._over.wait(PAUSE_SECONDS)
        return deleted

    def _sweep(self, sweep: Sweep, before: int) -> int:
        deleted = 0
        # A slice may be short because its rows are large. Only an empty slice is the last one.
        while not self._over.is_set() and (rows := self._store.prune(lambda connection: sweep(connection, before, BATCH_ROWS))):
            deleted += rows
            self._over.wait(PAUSE_SECONDS)
        return deleted

    def _run(self) -> None:
        while not self._over.is_set():
            self._over.wait(self.run_round())
