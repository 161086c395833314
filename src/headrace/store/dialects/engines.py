"""The database of a URL, and the engines that read and write it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from sqlalchemy import Engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from headrace.errors import SettingsError
from headrace.store.dialects import sqlite
from headrace.store.dialects.clock import wall_clock

POSTGRESQL = frozenset({"postgresql", "postgres", "postgresql+psycopg"})
HINT = "Use sqlite:///path/to/file.db or postgresql://user:password@host:5432/database."


def parsed(url: str) -> URL:
    """Return `url` as SQLAlchemy's, with the driver that Headrace uses.

    Raises:
        SettingsError: The URL names no supported database, or its driver is not installed.
    """
    try:
        result = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise SettingsError("The database URL is not one that Headrace understands.", hint=HINT) from error
    if result.drivername in POSTGRESQL:
        return _postgresql(result)
    if result.drivername not in {"sqlite", "sqlite+pysqlite"}:
        raise SettingsError("Headrace keeps its events in a SQLite file or in PostgreSQL.", hint=HINT)
    if not result.database or result.database == ":memory:":
        raise SettingsError("The database URL names no file.", hint=HINT)
    return result


def _postgresql(url: URL) -> URL:
    if not url.database:
        raise SettingsError("The database URL names no database.", hint=HINT)
    if find_spec("psycopg") is None:
        raise SettingsError("The driver for PostgreSQL is not installed.", hint="Install it with: pip install 'headrace[postgres]'")
    return url.set(drivername="postgresql+psycopg")


def is_postgresql(url: URL) -> bool:
    """Return whether the URL names a PostgreSQL database."""
    return url.get_backend_name() == "postgresql"


def engines(url: URL, *, me: str = "") -> tuple[Engine, Engine]:
    """Return the engine that reads and the engine that writes.

    On PostgreSQL each commit is announced with the sender `me`.
    """
    if not is_postgresql(url):
        return sqlite.engines(url)
    from headrace.store.dialects import postgresql  # imported late because the driver is an extra

    return postgresql.engines(url, me=me)


def clock_of(writer: Engine) -> Callable[[], int]:
    """Return the clock of the store, in microseconds since the epoch.

    Every API server uses the same clock: the database's own if it has one.
    """
    if not is_postgresql(writer.url):
        return wall_clock
    from headrace.store.dialects.clock import DatabaseClock

    return DatabaseClock(writer)
