"""Errors of the catalog, the files and pyiceberg, as errors that say what to do."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    ValidationError,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from headrace.errors import HeadraceError, PipelineError, TablesUnavailable
from headrace.pipeline.tables.iceberg.service_errors import service_error

LOCK_SECONDS: Final = 30
"""How long a statement waits for the lock of a SQLite catalog that another process holds."""

_NO_SPACE: Final = "Free space on its disk, then try again. Readers see the table as it was."
_NO_RIGHTS: Final = "Give the user of this process the right to read and write the folder of tables, and all in it."
_DAMAGED: Final = "Restore it from a backup. Copy it only while no pipeline runs, or with the command .backup of sqlite3."
_HINTS_OF_SQLITE: Final = {
    sqlite3.SQLITE_BUSY: "List the processes that have it open: fuser .iceberg/catalog.db (in the folder of tables). End or continue the "
    "paused one, then try again.",
    sqlite3.SQLITE_ERROR: "Another program or version wrote it. Restore it from a backup, and use the pyiceberg of headrace[iceberg].",
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_FULL: _NO_SPACE,
    sqlite3.SQLITE_READONLY: _NO_RIGHTS,
    sqlite3.SQLITE_CANTOPEN: _NO_RIGHTS,
    sqlite3.SQLITE_PERM: _NO_RIGHTS,
}
_HINTS_OF_SYSTEM: Final = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EACCES: _NO_RIGHTS,
    errno.EPERM: _NO_RIGHTS,
    errno.EROFS: _NO_RIGHTS,
    errno.ENOENT: "A file is missing. Restore the folder of tables from a backup, or move it back: Iceberg has absolute paths.",
}


@contextmanager
def iceberg_errors(what: str) -> Iterator[None]:
    """Raise `PipelineError` for an error of the catalog, a file or pyiceberg. `what`: what failed, as a sentence without its point.

    It is `TablesUnavailable` if another process holds the lock of a SQLite catalog, or a service does not answer: runs stay open
    meanwhile. It is `TablesRefused` if a service refuses a request. Conflicts of commits and errors of Headrace pass unchanged.
    """
    try:
        yield
    except (HeadraceError, CommitFailedException):
        raise
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise _of_catalog(what, error) from error
    except Exception as error:
        described = service_error(what, error) or _of_files(what, error)
        if described is None:
            raise
        raise described from error


def _of_files(what: str, error: Exception) -> PipelineError | None:
    """Return the error of Headrace for one of the files or of pyiceberg, or None for another one."""
    if isinstance(error, OSError):
        hint = _HINTS_OF_SYSTEM.get(error.errno or 0, "Check the disk, or that the catalog and the object store can be reached.")
        return PipelineError(f"{what}: {error}.", hint=hint)
    if isinstance(error, (NoSuchNamespaceError, NoSuchTableError, NotInstalledError, RESTError, ValidationError, ValueError)):
        reason = str(error).split("\n", 1)[0] if not isinstance(error, ValidationError) else "its metadata is damaged or of another version"
        return PipelineError(
            f"{what}: {reason}.", hint="Restore the table from a backup, or correct the catalog 'headrace' of pyiceberg's configuration."
        )
    return None


def _of_catalog(what: str, error: SQLAlchemyError | sqlite3.Error) -> PipelineError:
    """Return the error of Headrace for one of a SQL catalog."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # the low byte: the rest is detail
    if code == sqlite3.SQLITE_BUSY:
        return TablesUnavailable(f"{what}: another process has locked the catalog for {LOCK_SECONDS} s.", hint=_HINTS_OF_SQLITE[code])
    hint = _HINTS_OF_SQLITE.get(code, "Check the catalog's database and its disk.")
    return PipelineError(f"{what}: the catalog cannot be used: {cause}.", hint=hint)
