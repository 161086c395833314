"""Checkpoints of SQLite's write-ahead log beside the writer.

SQLite copies the log into the database within the commit that made it long enough: 32 MB, a quarter of a second, in which every other
write waits. Here a thread copies it on a connection of its own while the writer goes on. The writer copies what little came meanwhile, so
that the log is copied whole for a moment, and the next transaction begins it anew.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Final, NamedTuple

import structlog

# Every commit writes the pages of the key index anew; a longer write-ahead log folds more of them into one checkpoint.
CHECKPOINT_PAGES: Final = 8_000
MAX_WRITER_PAGES: Final = 2_000
"""The writer copies at most so many pages itself: more would hold up other writes for long."""

_INDEX_BYTES: Final = 100
_FRAMES: Final = slice(16, 20)
_COPIED: Final = slice(96, 100)

log = structlog.get_logger(__name__)


class LogPages(NamedTuple):
    """The pages in the write-ahead log, and how many of them are copied into the database."""

    total: int
    copied: int


def log_pages(index: Path) -> LogPages:
    """Return what the log's index (the file `-shm`, see sqlite.org/walformat.html) says; zeros where there is none."""
    try:
        with index.open("rb", buffering=0) as file:
            header = file.read(_INDEX_BYTES)
    except FileNotFoundError:
        return LogPages(0, 0)
    if len(header) < _INDEX_BYTES:
        return LogPages(0, 0)
    return LogPages(int.from_bytes(header[_FRAMES], sys.byteorder), int.from_bytes(header[_COPIED], sys.byteorder))


class Checkpoints:
    """The checkpoints of one database. All calls come from the writer's thread, but for `close`."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._index = Path(f"{database}-shm")
        self._thread: Thread | None = None
        self._from = 0

    def after_commit(self, writer: sqlite3.Connection) -> None:
        """Begin a checkpoint where the log is long enough, or complete one; it raises nothing."""
        pages = log_pages(self._index)
        if pages.total < CHECKPOINT_PAGES:
            self._from = 0
            return
        if self._thread is not None and self._thread.is_alive():
            return
        few = pages.total - pages.copied <= MAX_WRITER_PAGES
        due = pages.total >= self._from or (few and self._thread is not None)
        self._thread = None
        if pages.copied == pages.total or not due:
            return
        # While a reader holds the log back, not each of the next commits is to try again.
        self._from = pages.total + MAX_WRITER_PAGES
        if few:
            _copy(writer)
        else:
            self._thread = Thread(target=self._run, name="headrace-checkpoint", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait for the checkpoint that is under way."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        try:
            with closing(sqlite3.connect(self._database, isolation_level=None)) as raw:
                _copy(raw)
        except sqlite3.Error as error:
            _warn(error)


def _copy(raw: sqlite3.Connection) -> None:
    """Copy what no reader holds back; the log is as it was where that fails, and is copied later."""
    try:
        raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    except sqlite3.Error as error:
        _warn(error)


def _warn(error: sqlite3.Error) -> None:
    log.warning("checkpoint failed", error=str(error))
