"""What each connection must say to SQLite first: one file, many readers, one writer."""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import ConnectionPoolEntry

BUSY_TIMEOUT_MS = 10_000
CACHE_KIB = 65_536
# Every commit writes the pages of the key index anew; a longer write-ahead log folds more of them into one checkpoint.
CHECKPOINT_PAGES = 8_000


def engines(url: URL) -> tuple[Engine, Engine]:
    """Return the engine that reads and the engine that writes."""
    readers = create_engine(url, pool_size=8, max_overflow=32, hide_parameters=True)
    writer = create_engine(url, pool_size=1, max_overflow=0, hide_parameters=True)
    _prepare(readers, begin="BEGIN", query_only=True)
    _prepare(writer, begin="BEGIN IMMEDIATE", query_only=False)
    return readers, writer


def _prepare(engine: Engine, *, begin: str, query_only: bool) -> None:
    """Take transactions out of the driver's hands: it would begin them too late, and never as IMMEDIATE."""

    def connected(raw: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
        del entry
        raw.isolation_level = None
        prepare(raw, query_only=query_only)

    def began(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", began)


def prepare(raw: sqlite3.Connection, *, query_only: bool) -> None:
    """Say to a connection what it has to know."""
    raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    raw.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    if query_only:
        raw.execute("PRAGMA query_only = ON")
    else:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
