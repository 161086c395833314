"""Settings of each connection to PostgreSQL: snapshots for readers, one lock for every writer of the database.

Invariant: every writing transaction first takes the one advisory lock, and releases it after the commit is
visible. So writers follow one another however many API servers there are, and each sees all changes of the one
before it. `seq` is commit order, and a reader that follows the log cannot skip an event. The lock costs little
here, since waiting units of work are committed together anyway.
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
"""Key in a writing connection's `info`: the database's time at the begin of its transaction, in microseconds."""

CONNECTING = {
    "connect_timeout": "5",
    "application_name": "headrace",
    # detect within seconds a server that disappeared without closing its connection, not within the hours of
    # TCP's timeout
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
READER = {"idle_in_transaction_session_timeout": "300s", "jit": "off"}
WRITER = {
    # an API server that is stopped inside a transaction must not block the others without end
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "15s",
    "jit": "off",
    # otherwise a plan made for an empty log would be cached and used for a log of millions
    "plan_cache_mode": "force_custom_plan",
}

_begin = text("SELECT pg_advisory_xact_lock(:lock), pg_notify(:channel, :me), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
_durable = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"


def engines(url: URL, *, me: str) -> tuple[Engine, Engine]:
    """Return the engine that reads, and the engine that writes and announces its commits with the sender `me`."""
    connect_args = parameters(url)
    readers = create_engine(url, connect_args=connect_args, pool_size=8, max_overflow=32, hide_parameters=True)
    writer = create_engine(url, connect_args=connect_args, pool_size=1, max_overflow=0, hide_parameters=True)
    _prepare(readers, READER, read_only=True)
    _prepare(writer, WRITER, read_only=False)

    def began(connection: Connection) -> None:
        row = connection.execute(_begin, {"lock": LOCK, "channel": CHANNEL, "me": me}).one()
        connection.info[MOMENT] = row[2]

    event.listen(writer, "begin", began)
    return readers, writer


def parameters(url: URL) -> dict[str, str]:
    """Return the connection parameters that the URL does not set."""
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
        raw.read_only = read_only or None  # a writer does not request write access, because a read-only database reports itself as such
        # A reader needs one snapshot. A writer must see the commits made while it waited for the lock.
        raw.isolation_level = IsolationLevel.REPEATABLE_READ if read_only else IsolationLevel.READ_COMMITTED

    event.listen(engine, "connect", connected)
    event.listen(engine, "checkout", _checked_out)


def _checked_out(raw: psycopg.Connection[Any], entry: ConnectionPoolEntry, proxy: object) -> None:
    """Detect a connection that the server has closed, without a query.

    A server sends on an idle connection only to close it.
    """
    del entry, proxy
    if raw.closed or spoken_to(raw):
        raise InvalidatePoolError


def spoken_to(raw: psycopg.Connection[Any]) -> bool:
    """Return whether the server has sent data that was not read yet."""
    poll = select.poll()
    poll.register(raw.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def copy(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows by `COPY … FROM STDIN`, the fastest method.

    Raises:
        DBAPIError: As for every other statement.
    """
    raw: Any = connection.connection
    try:
        with raw.cursor() as cursor, cursor.copy(statement) as copying:
            for row in rows:
                copying.write_row(row)
    except psycopg.Error as error:
        disconnected = bool(raw.closed or raw.broken)
        raise DBAPIError.instance(
            statement, None, error, psycopg.Error, hide_parameters=True, connection_invalidated=disconnected, dialect=connection.dialect
        ) from error
