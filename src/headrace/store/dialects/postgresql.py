"""What each connection must say to PostgreSQL first: snapshots for readers, one lock for every writer of the database.

The law: every writing transaction begins by taking the one advisory lock, and the lock is given back after the commit can be seen. So
writers follow one another however many apis there are, each sees all that the one before it did, and `seq` is commit order: a reader
that follows the log cannot skip. A lock costs little here, since works that wait are committed together anyway.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import IsolationLevel
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

from headrace.store.dialects.notifications import CHANNEL

LOCK = int.from_bytes(b"headrace", "big")
MOMENT = "moment"
"""Where a writing connection's `info` has the database's time at the begin of its transaction, in microseconds."""

CONNECTING = {
    "connect_timeout": "5",
    "application_name": "headrace",
    # a server that is gone without a word is noticed within seconds, not within the hours that TCP would wait
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
READER = {"idle_in_transaction_session_timeout": "300s", "jit": "off"}
WRITER = {
    # an api that is stopped in the middle of a transaction must not hold the others up without end
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "15s",
    "jit": "off",
    # a plan made while the log was empty would be kept for a log of millions
    "plan_cache_mode": "force_custom_plan",
}

_begin = text("SELECT pg_advisory_xact_lock(:lock), pg_notify(:channel, :me), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
_durable = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"


def engines(url: URL, *, me: str) -> tuple[Engine, Engine]:
    """Return the engine that reads and the engine that writes and announces its commits as those of `me`."""
    given = parameters(url)
    readers = create_engine(url, connect_args=given, pool_size=8, max_overflow=32, hide_parameters=True)
    writer = create_engine(url, connect_args=given, pool_size=1, max_overflow=0, hide_parameters=True)
    _prepare(readers, READER, read_only=True)
    _prepare(writer, WRITER, read_only=False)

    def began(connection: Connection) -> None:
        found = connection.execute(_begin, {"lock": LOCK, "channel": CHANNEL, "me": me}).one()
        connection.info[MOMENT] = found[2]

    event.listen(writer, "begin", began)
    return readers, writer


def parameters(url: URL) -> dict[str, str]:
    """Return what is said on connecting where the URL does not say otherwise."""
    return {name: value for name, value in CONNECTING.items() if name not in url.query}


def _prepare(engine: Engine, settings: dict[str, str], *, read_only: bool) -> None:
    def connected(raw: psycopg.Connection[Any], entry: ConnectionPoolEntry) -> None:
        del entry
        raw.autocommit = True
        for name, value in settings.items():
            raw.execute("SELECT set_config(%s, %s, false)", (name, value), prepare=False)
        if not read_only:
            raw.execute(_durable)
        raw.autocommit = False
        raw.read_only = read_only or None  # a writer does not insist: a database that only reads says so itself
        # A reader sees one moment; a writer must see what was committed while it waited for the lock.
        raw.isolation_level = IsolationLevel.REPEATABLE_READ if read_only else IsolationLevel.READ_COMMITTED

    event.listen(engine, "connect", connected)
    event.listen(engine, "checkout", _checked_out)


def _checked_out(raw: psycopg.Connection[Any], entry: ConnectionPoolEntry, proxy: object) -> None:
    """Find, without asking the server, a connection that it has closed: nobody speaks on one that rests but to say goodbye."""
    del entry, proxy
    if raw.closed or spoken_to(raw):
        raise InvalidatePoolError


def spoken_to(raw: psycopg.Connection[Any]) -> bool:
    """Return whether the server has said something that was not read yet."""
    poll = select.poll()
    poll.register(raw.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def copy(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows by `COPY … FROM STDIN`, the quickest way in.

    Raises:
        DBAPIError: As every other statement.
    """
    raw: Any = connection.connection
    try:
        with raw.cursor() as cursor, cursor.copy(statement) as copying:
            for row in rows:
                copying.write_row(row)
    except psycopg.Error as error:
        gone = bool(raw.closed or raw.broken)
        raise DBAPIError.instance(
            statement, None, error, psycopg.Error, hide_parameters=True, connection_invalidated=gone, dialect=connection.dialect
        ) from error
