"""Access a database by its driver alone: one connection, and statements that are prepared once.

On PostgreSQL several statements share one round trip.

The connection serves callers with one small transaction after another: SQLAlchemy spends more time on a statement than
SQLite. A transaction begins with the first statement without `peek`, and takes the writers' lock. A statement
with an unread result is sent together with the next one.
"""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from typing_extensions import override

from headrace.store.dialects import sqlite
from headrace.store.dialects.engines import is_postgresql

if TYPE_CHECKING:
    import psycopg

    from headrace.store.dialects.statement_pipeline import PipelineResult, StatementPipeline


class Dialect(NamedTuple):
    """The SQL dialect."""

    name: str


class DriverConnection(ABC):
    """A connection of one thread. `rolled_back` is called when a transaction is rolled back."""

    dialect: Dialect
    url: URL

    def __init__(self) -> None:
        self.begun = False
        self.rolled_back: Callable[[], None] = lambda: None
        self._after: list[Callable[[], None]] = []

    @abstractmethod
    def exec_driver_sql(self, statement: str, parameters: Any = ()) -> Any:
        """Run a statement in the transaction, once or for each of a list of rows."""

    @abstractmethod
    def peek(self) -> None:
        """Begin no transaction with the next statement, which only reads."""

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call `call` when the transaction is durable, or immediately if none has begun."""
        self._after.append(call)

    def connect(self) -> Self:
        """Return the connection, as an engine does. The writer uses one of these."""
        return self

    def begin(self) -> Self:
        """Return the connection to commit."""
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
        """Roll back the transaction."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class _Rows(sqlite3.Cursor):
    def all(self) -> list[Any]:
        return self.fetchall()

    def scalars(self) -> list[Any]:
        return [row[0] for row in self.fetchall()]


class SqliteDriver(DriverConnection):
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
    """The future result of a statement in a pipeline."""

    def __init__(self, database: PostgresqlDriver, result: PipelineResult) -> None:
        self._database = database
        self._result = result

    def all(self) -> list[Any]:
        try:
            return self._result.all()
        except self._database.driver.Error as error:
            raise self._database.failed("", error) from error

    def scalars(self) -> list[Any]:
        return [row[0] for row in self.all()]

    @property
    def rowcount(self) -> int:
        try:
            return self._result.rowcount
        except self._database.driver.Error as error:
            raise self._database.failed("", error) from error


_BEGIN: Final = "SELECT pg_advisory_xact_lock(%(lock)s), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_SETTINGS: Final = {
    # every look-up uses an index, even where the planner expects few rows, so the plan may be cached
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # the server releases the locks of a host that disappeared without closing its connection
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}


class PostgresqlDriver(DriverConnection):
    """A PostgreSQL database.

    `moment` is called with its time (microseconds), and this machine's monotonic time before and after the
    query for it.
    """

    dialect = Dialect("postgresql")

    def __init__(self, url: URL) -> None:
        super().__init__()
        import psycopg as driver  # imported late because it is an extra

        self.url = url
        self.moment: Callable[[int, int, int], None] = lambda *_: None
        self.connected = 0
        self.driver = driver
        self._raw: psycopg.Connection[Any] | None = None
        self._pipeline: StatementPipeline | None = None
        self._clock_reading: tuple[PipelineResult, int] | None = None
        self._peeks = False
        self._open()

    @override
    def peek(self) -> None:
        self._peeks = True

    @override
    def exec_driver_sql(self, statement: str, parameters: Any = ()) -> _Answer:
        from headrace.store.dialects.postgresql import LOCK

        try:
            pipeline = self._piped()
            if not self.begun and not self._peeks:
                pipeline.execute("BEGIN", {})
                self._clock_reading = pipeline.execute(_BEGIN, {"lock": LOCK}), time.monotonic_ns() // 1000
                self.begun = True
            self._peeks = False
            for row in parameters if isinstance(parameters, list) else [parameters]:
                result = pipeline.execute(statement, row)
        except self.driver.Error as error:
            raise self.failed(statement, error) from error
        return _Answer(self, result)

    @override
    def _commit(self) -> None:
        pipeline, clock_reading = self._piped(), self._clock_reading
        try:
            pipeline.execute("COMMIT", {})
            # statements for after the commit travel with it, and run after it
            after, self._after = self._after, []
            for call in after:
                call()
            pipeline.sync()
            if clock_reading is not None:
                self.moment(clock_reading[0].all()[0][1], clock_reading[1], time.monotonic_ns() // 1000)
        except self.driver.Error as error:
            raise self.failed("COMMIT", error) from error

    @override
    def commit(self) -> None:
        super().commit()
        if self._pipeline is not None:
            try:
                self._pipeline.sync()
            except self.driver.Error as error:
                raise self.failed("", error) from error

    @override
    def rollback(self) -> None:
        self.begun = False
        self._peeks = False
        if self._pipeline is None:
            return
        with suppress(self.driver.Error):  # the connection is broken, and the next statement opens another
            with suppress(self.driver.Error):
                self._pipeline.sync()
            self._pipeline.execute("ROLLBACK", {})
            self._pipeline.sync()

    @override
    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()

    def send(self, statement: str, parameters: Mapping[str, Any]) -> None:
        """Run a statement outside of a transaction, without waiting for its result."""
        try:
            self._piped().execute(statement, parameters)
        except self.driver.Error as error:
            raise self.failed(statement, error) from error

    def failed(self, statement: str, error: Exception) -> DBAPIError:
        """Return SQLAlchemy's error for an error of the driver."""
        disconnected = self._raw is not None and bool(self._raw.closed or self._raw.broken)
        return _translated(statement, error, self.driver.Error, disconnected=disconnected)

    def _piped(self) -> StatementPipeline:
        if self._pipeline is None or self._raw is None or self._raw.closed:
            return self._open()
        return self._pipeline

    def _open(self) -> StatementPipeline:
        from headrace.store.dialects.postgresql import WRITER, parameters
        from headrace.store.dialects.statement_pipeline import StatementPipeline

        dialect = self.url.get_dialect()()
        positional, named = dialect.create_connect_args(self.url)
        try:
            raw = self.driver.connect(*positional, **{**parameters(self.url), **named}, autocommit=True)
            settings = WRITER | _SETTINGS
            for name, value in settings.items():
                raw.execute("SELECT set_config(%s, %s, false)", (name, value))
        except self.driver.Error as error:
            raise self.failed("", error) from error
        self._raw = raw
        self._pipeline = StatementPipeline(raw)
        self.connected += 1
        return self._pipeline


def direct(url: URL) -> DriverConnection:
    """Return a connection to the database of the URL.

    Raises:
        DBAPIError: The connection cannot be opened.
    """
    return PostgresqlDriver(url) if is_postgresql(url) else SqliteDriver(url)


def _translated(statement: str, error: Exception, base: type[Exception], *, disconnected: bool = False) -> DBAPIError:
    translated = DBAPIError.instance(statement, None, error, base, hide_parameters=True, connection_invalidated=disconnected)
    return cast(DBAPIError, translated)
