"""The connections: many readers, one writer, and what each of them must say to SQLite first."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event, insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry

from headrace.errors import SettingsError
from headrace.store.keyring import Keyring
from headrace.store.times import wall_clock
from headrace.store.trouble import told
from headrace.store.writer import A, Collector, R, T, Work, Writer

BUSY_TIMEOUT_MS = 10_000
CACHE_KIB = 65_536
# Every commit writes the pages of the key index anew; a longer write-ahead log folds more of them into one checkpoint.
CHECKPOINT_PAGES = 8_000


class Database:
    """One database: `reading()` gives a snapshot, `write` and `submit` run a work in the writer's transaction."""

    def __init__(self, url: str, *, clock: Callable[[], int] = wall_clock, keyring: Keyring | None = None) -> None:
        self.url = parsed(url)
        self.now = clock
        self.keyring = keyring or Keyring()
        self.readers, self._writing = engines(self.url)
        self._writer = Writer(self._writing)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that sees one moment of the database and changes nothing."""
        with told(self.url), self.readers.connect() as connection:
            yield connection

    def submit(self, work: Work[T]) -> Future[T]:
        """Queue `work` for the writer; the future has its answer once it is durable."""
        return self._writer.submit(work)

    def write(self, work: Work[T]) -> T:
        """Run `work` in the writer's transaction and wait until it is durable."""
        return self._writer.submit(work).result()

    def collect(self, collector: Collector[A, R], item: A) -> Future[R]:
        """Queue `item` for `collector`, which gets it with its neighbours in one transaction."""
        return self._writer.collect(collector, item)

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call `observer` after each commit, in the writer's thread: it must return at once. Returns what takes it away again."""
        return self._writer.observe(observer)

    def close(self) -> None:
        """Finish what is queued and close every connection."""
        self._writer.close()
        self.readers.dispose()
        self._writing.dispose()


class BulkInsert:
    """Inserts rows at the speed of the driver: plain tuples in the order of the table's columns."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._names = [column.name for column in table.columns]
        self._compiled: dict[str, tuple[str, bool]] = {}

    def __call__(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert `rows` in one driver call."""
        if not rows:
            return
        text, positional = self._statement(connection)
        if positional:
            connection.exec_driver_sql(text, list(rows))
        else:
            connection.exec_driver_sql(text, [dict(zip(self._names, row, strict=True)) for row in rows])

    def _statement(self, connection: Connection) -> tuple[str, bool]:
        name = connection.dialect.name
        if name not in self._compiled:
            compiled = insert(self._table).compile(dialect=connection.dialect, column_keys=self._names)
            self._compiled[name] = str(compiled), bool(connection.dialect.positional)
        return self._compiled[name]


def parsed(url: str) -> URL:
    """Return `url` as SQLAlchemy's.

    Raises:
        SettingsError: It is not a URL of a database that Headrace knows.
    """
    hint = "Use sqlite:///path/to/file.db."
    try:
        result = make_url(url)
        result.get_dialect()
    except (ArgumentError, NoSuchModuleError) as error:
        raise SettingsError("The database URL is not one that Headrace understands.", hint=hint) from error
    if result.get_backend_name() != "sqlite" or not result.database or result.database == ":memory:":
        raise SettingsError("Headrace keeps its events in a SQLite file.", hint=hint)
    return result


def engines(url: URL) -> tuple[Engine, Engine]:
    """Return the engine that reads and the engine that writes."""
    readers = create_engine(url, pool_size=8, max_overflow=32)
    writer = create_engine(url, pool_size=1, max_overflow=0)
    _prepare(readers, begin="BEGIN", query_only=True)
    _prepare(writer, begin="BEGIN IMMEDIATE", query_only=False)
    return readers, writer


def _prepare(engine: Engine, *, begin: str, query_only: bool) -> None:
    """Take transactions out of the driver's hands: it would begin them too late, and never as IMMEDIATE."""

    def connected(raw: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
        del entry
        raw.isolation_level = None
        raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        raw.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        if query_only:
            raw.execute("PRAGMA query_only = ON")
        else:
            raw.execute("PRAGMA journal_mode = WAL")
            raw.execute("PRAGMA synchronous = FULL")
            raw.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")

    def began(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", began)
