"""Allow one API server at a time to serve a SQLite file: a second one would not see its commits."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import ResourceError
from headrace.store.dialects.engines import is_postgresql, parsed

HINT = "Use that one, or stop it first. Several apis share a PostgreSQL database: see docs/guides/postgresql.md."


@contextmanager
def exclusive_api(database_url: str) -> Iterator[None]:
    """Lock a SQLite database for this API server. The kernel releases the lock when the process ends.

    Other databases are not locked.

    Raises:
        SettingsError: The URL is invalid or not supported.
        ResourceError: Another API server serves the file, or its folder is not writable.
    """
    url = parsed(database_url)
    if is_postgresql(url):
        yield
        return
    file = Path(url.database or "").absolute()
    if file.is_dir():
        raise ResourceError(f"The database {file} is a folder.", hint=f"Name a file: sqlite:///{file / 'headrace.db'}")
    try:
        lock = os.open(file.with_name(f"{file.name}-api"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        hint = f"Check that {file.parent} exists and may be written to."
        raise ResourceError(f"Cannot open the database {file}: {error.strerror}.", hint=hint) from error
    try:
        _take(lock, file)
        yield
    finally:
        os.close(lock)


def _take(lock: int, file: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(lock, 20).decode(errors="replace").strip()
        who = f" (process {holder})" if holder.isdecimal() else ""
        raise ResourceError(f"Another api{who} serves the database {file}.", hint=HINT) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
