"""A database by its driver alone: one connection, statements prepared once, and on PostgreSQL a round trip for many of them.

It is for those who make one small transaction after the other: SQLAlchemy takes longer for each statement than SQLite does. A transaction
begins with the first statement that does not `peek`, and takes the writers' lock; what is not read is sent with what comes next.
"""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from typing_extensions import override

from headrace.store import sqlite
from headrace.store.engines import is_postgresql

if TYPE_CHECKING:
    import psycopg


class Dialect(NamedTuple):
    """Which SQL is spoken."""

    name: str


class Direct(ABC):
    """A connection of one thread. `rolled_back` is called when a transaction is not kept."""

    dialect: Dialect
    url: URL

    def __init__(self) -> None:
        self.begun = False
        self.rolled_back: Callable[[], None] = lambda: None
        self._after: list[Callable[[], None]] = []

    @abstractmethod
    def exec_driver_sql(self, statement: str, parameters: Any = ()) -> Any:
        """Run a statement in the transaction, once, or for each of a list of rows."""

    @abstractmethod
    def peek(self) -> None:
        """Let the next statement begin no transaction: it only reads."""

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call `call` when the transaction is durable, or at once where none has begun."""
        self._after.append(call)

    def connect(self) -> Self:
        """Return the connection, as an engine does: the writer has one of these."""
        return self

    def begin(self) -> Self:
        """Return what is to be committed."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._after.clear()
            self.rollback()
            self.rolled_back()

    def commit(self) -> None:
        """Make the transaction durable, if one has begun."""
        if self.begun:
            self._commit()
        self.begun = False
        after, self._after = self._after, []
        for call in after:
            call()

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None:
        """Forget the transaction."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""


class _Rows(sqlite3.Cursor):
    def all(self) -> list[Any]:
        return self.fetchall()

    def scalars(self) -> list[Any]:
        return [row[0] for row in self.fetchall()]


class DirectSqlite(Direct):
    """A SQLite file."""

    dialect = Dialect("sqlite")

    def __init__(self, url: URL) -> None:
        super().__init__()
        self.url = url
        self._peeks = False
        self._raw = sqlite3.connect(url.database or "", isolation_level=None, check_same_thread=False, cached_statements=512)
        sqlite.prepare(self._raw, query_only=False)

    @override
    def peek(self) -> None:
        self._peeks = True

    @override
    def exec_driver_sql(self, statement: str, parameters: Any = ()) -> _Rows:
        cursor = self._raw.cursor(_Rows)
        try:
            if not self.begun and not self._peeks:
                cursor.execute("BEGIN IMMEDIATE")
                self.begun = True
            return cursor.executemany(statement, parameters) if isinstance(parameters, list) else cursor.execute(statement, parameters)
        except sqlite3.Error as error:
            raise _translated(statement, error, sqlite3.Error) from error
        finally:
            self._peeks = False

    @override
    def _commit(self) -> None:
        try:
            self._raw.execute("COMMIT")
        except sqlite3.Error as error:
            raise _translated("COMMIT", error, sqlite3.Error) from error

    @override
    def rollback(self) -> None:
        self.begun = False
        if self._raw.in_transaction:
            self._raw.execute("ROLLBACK")

    @override
    def close(self) -> None:
        self._raw.close()


class _Answer:
    """What a statement in a pipeline will have found."""

    def __init__(self, cursor: psycopg.Cursor[Any], pipeline: psycopg.Pipeline, base: type[Exception]) -> None:
        self._cursor = cursor
        self._pipeline = pipeline
        self._base = base

    def all(self) -> list[Any]:
        try:
            return self._cursor.fetchall()
        except self._base as error:
            raise _translated("", error, self._base) from error

    def scalars(self) -> list[Any]:
        return [row[0] for row in self.all()]

    @property
    def rowcount(self) -> int:
        try:
            self._pipeline.sync()
        except self._base as error:
            raise _translated("", error, self._base) from error
        return self._cursor.rowcount


_BEGIN: Final = "SELECT pg_advisory_xact_lock(%s), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_SETTINGS: Final = {
    # every look-up is by an index, however few rows the planner thinks there are: so the plan may be kept
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # the server lets go of what a host held that is gone without a word
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}


class DirectPostgresql(Direct):
    """A PostgreSQL database; `moment` is called with its time (µs) and this machine's monotonic time before and after it was told."""

    dialect = Dialect("postgresql")

    def __init__(self, url: URL) -> None:
        super().__init__()
        import psycopg as driver  # late: it is an extra

        self.url = url
        self.moment: Callable[[int, int, int], None] = lambda *_: None
        self.connected = 0
        self._driver = driver
        self._raw: psycopg.Connection[Any] | None = None
        self._pipeline: Any = None
        self._told: tuple[psycopg.Cursor[Any], int] | None = None
        self._peeks = False
        self._open()

    @override
    def peek(self) -> None:
        self._peeks = True

    @override
    def exec_driver_sql(self, statement: str, parameters: Any = ()) -> _Answer:
        from headrace.store.postgresql import LOCK

        try:
            raw = self._piped()
            if not self.begun and not self._peeks:
                raw.execute("BEGIN")
                self._told = raw.execute(_BEGIN, (LOCK,)), time.monotonic_ns() // 1000
                self.begun = True
            cursor = raw.cursor()
            if isinstance(parameters, list):
                cursor.executemany(statement, parameters)
            else:
                cursor.execute(statement, parameters)
        except self._driver.Error as error:
            raise self._failed(statement, error) from error
        finally:
            self._peeks = False
        return _Answer(cursor, self._pipeline, self._driver.Error)

    @override
    def _commit(self) -> None:
        raw, told = self._piped(), self._told
        try:
            raw.execute("COMMIT")
            # what comes after a commit goes out with it, and happens after it
            after, self._after = self._after, []
            for call in after:
                call()
            self._unpipe()
            if told is not None and (row := told[0].fetchone()) is not None:
                self.moment(row[1], told[1], time.monotonic_ns() // 1000)
        except self._driver.Error as error:
            raise self._failed("COMMIT", error) from error

    @override
    def commit(self) -> None:
        super().commit()
        try:
            self._unpipe()
        except self._driver.Error as error:
            raise self._failed("", error) from error

    @override
    def rollback(self) -> None:
        self.begun = False
        with suppress(self._driver.Error):  # it is broken, then: the next statement opens another
            with suppress(self._driver.Error):
                self._unpipe()
            if self._raw is not None and not self._raw.closed:
                self._raw.execute("ROLLBACK")

    @override
    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()

    def send(self, statement: str, parameters: Sequence[Any]) -> None:
        """Run a statement for which nobody waits, outside of a transaction."""
        self._piped().execute(statement, parameters)

    def _piped(self) -> psycopg.Connection[Any]:
        raw = self._raw
        if raw is None or raw.closed:
            raw = self._open()
        if self._pipeline is None:
            pipeline = raw.pipeline()
            pipeline.__enter__()
            self._pipeline = pipeline
        return raw

    def _unpipe(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.__exit__(None, None, None)

    def _open(self) -> psycopg.Connection[Any]:
        from headrace.store.postgresql import WRITER, parameters

        self._pipeline = None
        dialect = self.url.get_dialect()()
        positional, named = dialect.create_connect_args(self.url)
        try:
            raw = self._driver.connect(*positional, **{**parameters(self.url), **named}, autocommit=True, prepare_threshold=0)
            settings = WRITER | _SETTINGS
            for name, value in settings.items():
                raw.execute("SELECT set_config(%s, %s, false)", (name, value), prepare=False)
        except self._driver.Error as error:
            raise self._failed("", error) from error
        self._raw = raw
        self.connected += 1
        return raw

    def _failed(self, statement: str, error: Exception) -> DBAPIError:
        gone = self._raw is not None and bool(self._raw.closed or self._raw.broken)
        return _translated(statement, error, self._driver.Error, gone=gone)


def direct(url: URL) -> Direct:
    """Return a connection to the database that the URL names.

    Raises:
        DBAPIError: It cannot be opened.
    """
    return DirectPostgresql(url) if is_postgresql(url) else DirectSqlite(url)


def _translated(statement: str, error: Exception, base: type[Exception], *, gone: bool = False) -> DBAPIError:
    made = DBAPIError.instance(statement, None, error, base, hide_parameters=True, connection_invalidated=gone)
    return cast(DBAPIError, made)
