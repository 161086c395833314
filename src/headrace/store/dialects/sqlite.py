"""Settings of each connection to SQLite: one file, many readers, one writer."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from threading import Event

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import ConnectionPoolEntry

BUSY_TIMEOUT_MS = 10_000
CACHE_KIB = 65_536
# Every commit writes the pages of the key index again. A longer write-ahead log merges more of them into one
# checkpoint.
CHECKPOINT_PAGES = 8_000
MAX_WAL_BYTES = 128 * 1024 * 1024
MAX_IDLE_WAL_BYTES = 64 * 1024 * 1024
"""Maximum bytes of the write-ahead log's file after a restart of the log. The excess of a burst is freed."""
READERS_WAIT_SECONDS = 0.5
"""Maximum seconds for which new readers wait for a restart of the write-ahead log."""


def engines(url: URL) -> tuple[Engine, Engine]:
    """Return the engine that reads and the engine that writes."""
    readers = create_engine(url, pool_size=8, max_overflow=32, hide_parameters=True)
    writer = create_engine(url, pool_size=1, max_overflow=0, hide_parameters=True)
    _prepare(readers, begin="BEGIN", query_only=True)
    _prepare(writer, begin="BEGIN IMMEDIATE", query_only=False)
    _bound_wal(readers, writer, Path(f"{url.database}-wal"))
    return readers, writer


def _bound_wal(readers: Engine, writer: Engine, wal: Path) -> None:
    """Delay new readers for a moment whenever the write-ahead log is too long.

    SQLite restarts the log only while no reader is active. If readers always overlapped, the log would grow as
    long as they do.
    """
    free = Event()
    free.set()
    bound = MAX_WAL_BYTES

    def checked_in(raw: sqlite3.Connection | None, entry: ConnectionPoolEntry) -> None:
        nonlocal bound
        del entry
        size = wal.stat().st_size if raw is not None and wal.exists() else 0
        if raw is None or size <= bound:
            return
        free.clear()
        try:
            raw.execute(f"PRAGMA busy_timeout = {round(READERS_WAIT_SECONDS * 1000)}")
            ((busy, *_),) = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            # With a slower reader, the next commits must not each wait for it.
            bound = size + MAX_WAL_BYTES // 4 if busy else MAX_WAL_BYTES
        finally:
            free.set()
            raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")

    def beginning(connection: Connection) -> None:
        del connection
        free.wait(READERS_WAIT_SECONDS)

    event.listen(writer, "checkin", checked_in)
    event.listen(readers, "begin", beginning, insert=True)


def _prepare(engine: Engine, *, begin: str, query_only: bool) -> None:
    """Take over transactions from the driver, which would begin them too late and never as IMMEDIATE."""

    def connected(raw: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
        del entry
        raw.isolation_level = None
        prepare(raw, query_only=query_only)

    def began(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", began)


def prepare(raw: sqlite3.Connection, *, query_only: bool) -> None:
    """Configure a connection."""
    raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    raw.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    if query_only:
        raw.execute("PRAGMA query_only = ON")
    else:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        raw.execute(f"PRAGMA journal_size_limit = {MAX_IDLE_WAL_BYTES}")
        # Some builds overwrite deleted data, and would then write its pages again: 10 MiB for a row of 10 MiB.
        raw.execute("PRAGMA secure_delete = FAST")
