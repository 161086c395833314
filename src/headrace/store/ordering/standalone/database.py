"""Open a database that holds only ordering stores.

Its one writer has its own thread and one connection, which uses the driver directly, without SQLAlchemy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine

from headrace.store.db.errors import translate_errors
from headrace.store.db.writer import Writer
from headrace.store.dialects.clock import wall_clock
from headrace.store.dialects.driver import DriverConnection, PostgresqlDriver, direct
from headrace.store.dialects.engines import engines, parsed
from headrace.store.ordering.standalone.locks import FileLocks, Locks, SessionLocks
from headrace.store.tables.base import metadata
from headrace.store.tables.ordering import ORDERING_TABLES

T = TypeVar("T")
DRIFT_MICROS = 50_000


class StandaloneDatabase:
    """A database with one writer.

    Works run one after the other in the writer's thread. Works that wait together share a transaction.
    """

    def __init__(self, url: str, prepare: Callable[[Connection], int]) -> None:
        """Open the database and create its tables. `prepared` is the result of `prepare`.

        Raises:
            SettingsError: The URL is invalid or not supported.
            ResourceError: The database cannot be opened or written.
        """
        self.url = parsed(url)
        self._readers, writing = engines(self.url)
        try:
            with translate_errors(self.url), writing.begin() as connection:
                metadata.create_all(connection, tables=ORDERING_TABLES)
                self.prepared = prepare(connection)
            with translate_errors(self.url):
                self._direct = direct(self.url)
        finally:
            writing.dispose()
        self.now: Callable[[], int] = wall_clock
        if isinstance(self._direct, PostgresqlDriver):
            clock = self.now = _ServerClock()
            self._direct.moment = clock.record
        self._inside: int | None = None
        self._writer = Writer(cast(Engine, self._direct))
        # the first transaction fetches the database's time
        self.write(lambda connection: connection.exec_driver_sql("SELECT 1").all())

    def locks(self) -> Locks:
        """Return the locks of this database on events in progress."""
        if isinstance(self._direct, PostgresqlDriver):
            return SessionLocks(self._direct)
        return FileLocks(self._direct, f"{self.url.database}-in-hand")

    def when_undone(self, call: Callable[[], None]) -> None:
        """Call `call` whenever a transaction is rolled back."""
        self._direct.rolled_back = call

    def submit(self, work: Callable[[DriverConnection], T]) -> Future[T]:
        """Queue `work` for the writer. The future has its result once the commit is durable."""

        def run(connection: Any) -> T:
            self._inside = get_ident()
            try:
                return work(connection)
            finally:
                self._inside = None

        return self._writer.submit(run)

    @property
    def inside(self) -> bool:
        """Return whether the caller runs within a work, whose transaction its writes then join."""
        return self._inside == get_ident()

    def write(self, work: Callable[[DriverConnection], T]) -> T:
        """Run `work` in the writer's transaction and wait until it is durable. Within another work, join its transaction."""
        if self._inside == get_ident():
            return work(self._direct)
        return self.submit(work).result()

    @contextmanager
    def reading(self) -> Iterator[Connection | DriverConnection]:
        """Yield a connection to one snapshot of the database."""
        if self._inside == get_ident():
            yield self._direct
        else:
            with translate_errors(self.url), self._readers.connect() as connection:
                yield connection

    def close(self) -> None:
        """Finish the queued works and close every connection."""
        self._writer.close()
        self._direct.close()
        self._readers.dispose()


class _ServerClock:
    """The server's time in µs.

    Each transaction fetches it, and the host's monotonic clock continues it in between.
    """

    def __init__(self) -> None:
        self._ahead: int | None = None

    def __call__(self) -> int:
        return time.time_ns() // 1000 if self._ahead is None else time.monotonic_ns() // 1000 + self._ahead

    def record(self, moment: int, before: int, after: int) -> None:
        """Record a server time that was read between two readings of the monotonic clock."""
        lower, upper = moment - after, moment - before
        if self._ahead is None or not lower - DRIFT_MICROS <= self._ahead <= upper + DRIFT_MICROS:
            self._ahead = upper
