"""A database that holds nothing but orderings: one connection by the driver alone, in the thread of its one writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine

from headrace.store.db.errors import told
from headrace.store.db.writer import Writer
from headrace.store.dialects.clock import wall_clock
from headrace.store.dialects.driver import DriverConnection, PostgresqlDriver, direct
from headrace.store.dialects.engines import engines, parsed
from headrace.store.ordering.locks import FileLocks, Locks, SessionLocks
from headrace.store.tables.base import metadata
from headrace.store.tables.ordering import ORDERING_TABLES

T = TypeVar("T")
DRIFT_MICROS = 50_000


class StandaloneDatabase:
    """One database: works run one after the other in the writer's thread, and those that wait together share a transaction."""

    def __init__(self, url: str, prepare: Callable[[Connection], int]) -> None:
        """Open it, and make its tables; `prepared` is what `prepare` gave.

        Raises:
            SettingsError: The URL is none that Headrace understands.
            ResourceError: The database cannot be opened or written.
        """
        self.url = parsed(url)
        self._readers, writing = engines(self.url)
        try:
            with told(self.url), writing.begin() as connection:
                metadata.create_all(connection, tables=ORDERING_TABLES)
                self.prepared = prepare(connection)
            with told(self.url):
                self._direct = direct(self.url)
        finally:
            writing.dispose()
        self.now: Callable[[], int] = wall_clock
        if isinstance(self._direct, PostgresqlDriver):
            clock = self.now = _ServerClock()
            self._direct.moment = clock.told
        self._inside: int | None = None
        self._writer = Writer(cast(Engine, self._direct))
        self.write(lambda connection: connection.exec_driver_sql("SELECT 1").all())  # the first transaction brings the database's time

    def locks(self) -> Locks:
        """Return the locks of this database on events in hand."""
        if isinstance(self._direct, PostgresqlDriver):
            return SessionLocks(self._direct)
        return FileLocks(self._direct, f"{self.url.database}-in-hand")

    def when_undone(self, call: Callable[[], None]) -> None:
        """Call `call` when a transaction was not kept."""
        self._direct.rolled_back = call

    def submit(self, work: Callable[[DriverConnection], T]) -> Future[T]:
        """Queue `work` for the writer; the future has its answer once it is durable."""

        def run(connection: Any) -> T:
            self._inside = get_ident()
            try:
                return work(connection)
            finally:
                self._inside = None

        return self._writer.submit(run)

    @property
    def inside(self) -> bool:
        """Whether the caller is within a work: what it writes is part of that."""
        return self._inside == get_ident()

    def write(self, work: Callable[[DriverConnection], T]) -> T:
        """Run `work` in the writer's transaction and wait until it is durable; within another work, it is part of that."""
        if self._inside == get_ident():
            return work(self._direct)
        return self.submit(work).result()

    @contextmanager
    def reading(self) -> Iterator[Connection | DriverConnection]:
        """Give what reads one moment of the database."""
        if self._inside == get_ident():
            yield self._direct
        else:
            with told(self.url), self._readers.connect() as connection:
                yield connection

    def close(self) -> None:
        """Finish what is queued and close every connection."""
        self._writer.close()
        self._direct.close()
        self._readers.dispose()


class _ServerClock:
    """Tells the server's time in µs: each transaction brings it along, and this machine's monotonic clock counts on between them."""

    def __init__(self) -> None:
        self._ahead: int | None = None

    def __call__(self) -> int:
        return time.time_ns() // 1000 if self._ahead is None else time.monotonic_ns() // 1000 + self._ahead

    def told(self, moment: int, before: int, after: int) -> None:
        """Take a moment that the server told between two moments of the monotonic clock."""
        least, most = moment - after, moment - before
        if self._ahead is None or not least - DRIFT_MICROS <= self._ahead <= most + DRIFT_MICROS:
            self._ahead = most
