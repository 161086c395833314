"""Translate the database's errors into Headrace's: what failed, why, and what to do. They never contain a password."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from headrace.errors import ApiRefused, HeadraceError, ResourceError, StorageBusy, StorageFull

_FULL = {
    "SQLITE_FULL": "The disk is full",
    "SQLITE_READONLY": "The database is read-only",
    "SQLITE_IOERR": "The disk failed",
}
_BACK = "Is PostgreSQL running? A running API server reconnects on its own. If this one was starting, start it again."
# PostgreSQL's error codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
_UNDONE = frozenset({"40001", "40P01"})  # serialization failure, deadlock: the other transaction continued
_AWAY = frozenset({"57P01", "57P02", "57P03", "57014", "53300", "25P03", *_UNDONE})
_TAKES_NO_MORE = {
    "53100": "The disk is full",
    "53200": "The server has no memory left",
    "58030": "The disk failed",
    "25006": "The database is read-only: a standby, perhaps",
}
# A refused connection has a message but no error code.
_REFUSALS = (
    (r"password authentication failed|no password supplied", "refuses the user or the password", "Correct them in the database URL."),
    (r"no pg_hba\.conf entry", "does not accept this user from this host", "Allow it in the server's pg_hba.conf."),
    (r'role "[^"]*" does not exist', "does not know the user", "Make it with createuser, or correct the database URL."),
    (r'database "[^"]*" does not exist', "is not there", "Make it with createdb, or correct the database URL."),
)


def display_name(url: URL) -> str:
    """Return the database's display name: a file's path, or the URL without password and parameters."""
    if url.get_backend_name() == "sqlite":
        return url.database or "in memory"
    public = URL.create("postgresql", username=url.username, host=url.host, port=url.port, database=url.database)
    return public.render_as_string()


def explain(error: DBAPIError, url: URL) -> HeadraceError | None:
    """Return the error with a hint for the user how to resolve `error`, or None if Headrace itself is at fault."""
    if isinstance(error.orig, sqlite3.Error):
        return _by_sqlite(error.orig, display_name(url))
    state = getattr(error.orig, "sqlstate", None)
    return _without_state(error, url) if state is None else _by_postgresql(state, display_name(url))


def is_rolled_back(error: DBAPIError) -> bool:
    """Return whether the transaction was certainly rolled back and a retry may succeed. Valid only before the commit is sent."""
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _UNDONE


def _by_sqlite(error: sqlite3.Error, where: str) -> HeadraceError | None:
    name = getattr(error, "sqlite_errorname", "")
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


def _by_postgresql(state: str, where: str) -> HeadraceError | None:
    if state in _AWAY or state.startswith("08"):
        return StorageBusy(f"The database {where} does not answer.", hint=_BACK)
    if state == "55P03":
        return StorageBusy(f"Another api holds the database {where}.", hint="Is one migrating it, or stuck? See pg_stat_activity there.")
    if state in _TAKES_NO_MORE:
        return StorageFull(f"{_TAKES_NO_MORE[state]}: {where} takes no more.", hint="Mend it at the server; nothing is lost meanwhile.")
    if state == "42501":
        return ResourceError(f"The database {where} does not allow it to this user.", hint="Make the user the owner of the database.")
    if state.startswith(("22", "54")):
        return _not_storable()
    return None


def _without_state(error: DBAPIError, url: URL) -> HeadraceError | None:
    """Translate an error without a code, or return None.

    The driver itself found it: an unreachable server, a refused login, or a text that PostgreSQL cannot store.
    """
    where, words = display_name(url), str(error.orig)
    for pattern, what, hint in _REFUSALS:
        if re.search(pattern, words):
            return ResourceError(f"The database {where} {what}.", hint=hint)
    kind = type(error.orig).__name__
    if kind == "DataError":
        return _not_storable()
    if error.connection_invalidated or kind in {"OperationalError", "ConnectionTimeout"}:
        why = words.rpartition("failed: ")[2].partition("\n")[0].strip()
        if url.password:
            why = why.replace(str(url.password), "***")
        return StorageBusy(f"The database {where} does not answer: {why}.", hint=_BACK)
    return None


def _not_storable() -> HeadraceError:
    what = "The database cannot hold one of these values: a text with a NUL in it or too long for a name, or a number of more than 64 bits."
    return ApiRefused(what, hint="Send it without, or shorter.", status=422, problem="invalid")


@contextmanager
def translate_errors(url: URL) -> Iterator[None]:
    """Raise the database's errors as Headrace's own where the user can resolve them."""
    try:
        yield
    except DBAPIError as error:
        better = explain(error, url)
        if better is None:
            raise
        raise better from error
