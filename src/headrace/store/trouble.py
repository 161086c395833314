"""The database's own errors, turned into Headrace's: what is wrong, and what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from headrace.errors import HeadraceError, ResourceError, StorageBusy, StorageFull

_FULL = {
    "SQLITE_FULL": "The disk is full",
    "SQLITE_READONLY": "The database is read-only",
    "SQLITE_IOERR": "The disk failed",
}


def named(url: URL) -> str:
    """Return the database's name for people: a file's path, or the URL without its password."""
    if url.get_backend_name() == "sqlite":
        return url.database or "in memory"
    return url.render_as_string(hide_password=True)


def explained(error: DBAPIError, url: URL) -> HeadraceError | None:
    """Return the error that tells a person what to do about `error`, or None where Headrace itself is at fault."""
    where = named(url)
    name = getattr(error.orig, "sqlite_errorname", "")
    if not isinstance(error.orig, sqlite3.Error):
        return StorageBusy(f"The database {where} does not answer.") if error.connection_invalidated else None
    if name.startswith("SQLITE_BUSY"):
        return StorageBusy(f"Another process holds the database {where}.", hint="Run one api for each SQLite file.")
    if name.startswith("SQLITE_CANTOPEN"):
        return ResourceError(f"Cannot open the database {where}.", hint=f"Check that {Path(where).parent} exists and may be written to.")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return ResourceError(f"{where} is not a usable SQLite database.", hint="Restore it from a backup, or name another file.")
    for prefix, what in _FULL.items():
        if name.startswith(prefix):
            return StorageFull(f"{what}: {where} takes no more.", hint=f"Make room on, or allow writing to, {Path(where).parent}.")
    return None


@contextmanager
def told(url: URL) -> Iterator[None]:
    """Raise the database's errors as Headrace's own where a person can do something about them."""
    try:
        yield
    except DBAPIError as error:
        better = explained(error, url)
        if better is None:
            raise
        raise better from error
