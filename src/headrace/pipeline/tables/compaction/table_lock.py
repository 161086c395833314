"""The locks of a table, in `.compaction/<table>` beside it. The system releases those of a killed process.

A compaction holds `compactor.lock`. Writers of Parquet hold `writers.lock` together while they add a file, and a
compaction holds it alone while it exchanges the folder. On file systems that other hosts can write there are no locks.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headrace.errors import PipelineError
from headrace.pipeline.tables.compaction.file_system import is_local

MAX_WAIT: Final = 60.0
"""Seconds that a writer waits for an exchange of the folder, which takes some milliseconds."""
REMOTE: Final = "_remote_writers"
"""A file in a table's folder, if a host has written the table through a network. The table is not compacted then."""

_POLL_SECONDS: Final = 0.005


class TableBusy(PipelineError):
    """A table cannot be compacted at this moment. It is unchanged."""


def work_folder(tables: Path, table: str) -> Path:
    """Return the folder of a table's locks, drafts and replaced files."""
    return tables / ".compaction" / table


@contextmanager
def writer_lock(tables: Path, table: str) -> Iterator[None]:
    """Keep compactions from exchanging the folder of the table, which exists.

    Raises:
        PipelineError: An exchange did not end within MAX_WAIT.
    """
    if not is_local(tables):
        if not (tables / table / REMOTE).exists():
            (tables / table / REMOTE).touch()
        yield
        return
    with _locked(_opened(tables, table, "writers.lock"), fcntl.LOCK_SH, MAX_WAIT) as held:
        if not held:
            raise PipelineError(
                f"A compaction has held the table {table!r} for {MAX_WAIT:.0f} s.",
                hint="The process that compacts it may be suspended. Resume it or end it.",
            )
        yield


@contextmanager
def exchange_lock(tables: Path, table: str, max_wait: float) -> Iterator[bool]:
    """Keep writers out of the table; give False if one held it for `max_wait` seconds."""
    with _locked(_opened(tables, table, "writers.lock"), fcntl.LOCK_EX, max_wait) as held:
        yield held


@contextmanager
def compactor_lock(tables: Path, table: str) -> Iterator[None]:
    """Keep other compactions out of the table.

    Raises:
        TableBusy: Another one is running.
    """
    with _locked(_opened(tables, table, "compactor.lock"), fcntl.LOCK_EX, 0.0) as held:
        if not held:
            raise TableBusy(f"Another process compacts the table {table!r}.", hint="Wait until it has ended.")
        yield


def _opened(tables: Path, table: str, name: str) -> int:
    folder = work_folder(tables, table)
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / name, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)


@contextmanager
def _locked(descriptor: int, kind: int, max_wait: float) -> Iterator[bool]:
    """Lock an open file, and close it at the end; give False if it was not free within `max_wait` seconds."""
    try:
        yield _acquire(descriptor, kind, max_wait)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, kind: int, max_wait: float) -> bool:
    deadline = time.monotonic() + max_wait
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)  # a lock of another process has no event, and flock has no timeout
        else:
            return True
