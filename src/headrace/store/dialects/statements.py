"""Statements that differ between SQLite and PostgreSQL, each in one place: many keys, bulk inserts, upserts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol, Self, TypeAlias

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Executable,
    LargeBinary,
    Row,
    Table,
    Text,
    bindparam,
    cast,
    column,
    func,
    insert,
    literal,
    literal_column,
    select,
)
from sqlalchemy import table as table_clause
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import make_url
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import KeyedColumnElement
from sqlalchemy.sql.expression import any_
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Boolean
from typing_extensions import override

from headrace.store.dialects.driver import DriverConnection

MAX_INSERT_ROWS = 8
"""Maximum number of rows inserted by statements, because a COPY is one more round trip."""

LITTLE_BY_LITTLE = {"stream_results": True, "max_row_buffer": 50}
"""Options of a query with large rows.

By default PostgreSQL's driver would fetch all of them before the first is available.
"""

MAX_STATEMENT_VALUES = 20_000
"""Maximum number of values of one statement. SQLite takes 32,766."""

Rows = Sequence[Mapping[str, Any]]
ResultRow: TypeAlias = Row[*tuple[Any, ...]]
"""A row of a query, with its columns as attributes."""
Excluded = ReadOnlyColumnCollection[str, KeyedColumnElement[Any]]


class StatementResult(Protocol):
    """The result of a statement, from SQLAlchemy or from the driver."""

    @property
    def rowcount(self) -> int:
        """Return the number of rows that the statement changed."""
        ...

    def all(self) -> Sequence[Any]:
        """Return the rows."""
        ...

    def scalars(self) -> Iterable[Any]:
        """Return the first column."""
        ...


Runs: TypeAlias = Connection | DriverConnection
"""A connection that runs statements: SQLAlchemy's, or the driver's own."""


class Condition(FunctionElement[bool]):
    """A boolean expression used as a condition without a comparison.

    Otherwise SQLite would receive `… = 1`, and would scan every row for it.
    """

    type = Boolean()
    inherit_cache = True

    @override
    def self_group(self, against: Any = None) -> Self:
        return self


class in_list(Condition):  # noqa: N801  reads like SQL
    """The condition that the column has one of the values of the parameter `name`, a list of any length.

    SQLite receives a parameter for each value. PostgreSQL receives one array, so that the statement is the same
    for every length.
    """

    inherit_cache = True

    def __init__(self, column: ColumnElement[Any], name: str) -> None:
        super().__init__(column, bindparam(name, type_=column.type))


def _parts(element: in_list) -> tuple[ColumnElement[Any], str]:
    column, parameter = element.clauses
    return column, str(parameter.key)


@compiles(in_list)
def _in_list(element: in_list, compiler: SQLCompiler, **other: Any) -> str:
    column, name = _parts(element)
    return compiler.process(column.in_(bindparam(name, expanding=True)), **other)


@compiles(in_list, "postgresql")
def _in_array(element: in_list, compiler: SQLCompiler, **other: Any) -> str:
    column, name = _parts(element)
    return compiler.process(column == any_(bindparam(name, type_=ARRAY(column.type))), **other)


class json_array_has(Condition):  # noqa: N801  reads like SQL
    """The condition that the JSON array of numbers in a text column contains this number."""

    inherit_cache = True

    def __init__(self, column: ColumnElement[str], number: int) -> None:
        super().__init__(column, literal(number, BigInteger()))


@compiles(json_array_has)
def _by_json_each(element: json_array_has, compiler: SQLCompiler, **other: Any) -> str:
    column, number = element.clauses
    each = func.json_each(column).table_valued("value")
    return compiler.process(select(each.c.value).where(each.c.value == number).exists(), **other)


@compiles(json_array_has, "postgresql")
def _by_containment(element: json_array_has, compiler: SQLCompiler, **other: Any) -> str:
    column, number = element.clauses
    return compiler.process(cast(column, JSONB).contains(func.to_jsonb(number)), **other)


class byte_length(FunctionElement[int]):  # noqa: N801  reads like SQL
    """The length of a text in UTF-8, in bytes.

    SQLite reads the text for it, because `octet_length` requires version 3.43.
    """

    type = BigInteger()
    inherit_cache = True


@compiles(byte_length)
def _of_blob(element: byte_length, compiler: SQLCompiler, **other: Any) -> str:
    (column,) = element.clauses
    return compiler.process(func.length(cast(column, LargeBinary)), **other)


@compiles(byte_length, "postgresql")
def _in_octets(element: byte_length, compiler: SQLCompiler, **other: Any) -> str:
    (column,) = element.clauses
    return compiler.process(func.octet_length(column), **other)


class joined(FunctionElement[str]):  # noqa: N801  reads like SQL
    """The values of a column that are not null, in the order in which the database reads them, as one text.

    `separator` is between them. All columns that one query joins have the same order.
    """

    type = Text()
    inherit_cache = True

    def __init__(self, column: ColumnElement[Any], separator: str = "") -> None:
        super().__init__(column, literal_column(f"'{separator}'"))


@compiles(joined)
def _group_concat(element: joined, compiler: SQLCompiler, **other: Any) -> str:
    return compiler.process(func.group_concat(*element.clauses), **other)


@compiles(joined, "postgresql")
def _string_agg(element: joined, compiler: SQLCompiler, **other: Any) -> str:
    column, separator = element.clauses
    return compiler.process(func.string_agg(cast(column, Text), separator), **other)


class hexadecimal(FunctionElement[str]):  # noqa: N801  reads like SQL
    """The bytes of a column as hexadecimal text."""

    type = Text()
    inherit_cache = True


@compiles(hexadecimal)
def _hex(element: hexadecimal, compiler: SQLCompiler, **other: Any) -> str:
    return compiler.process(func.hex(*element.clauses), **other)


@compiles(hexadecimal, "postgresql")
def _encoded(element: hexadecimal, compiler: SQLCompiler, **other: Any) -> str:
    return compiler.process(func.encode(*element.clauses, "hex"), **other)


def rows_among(connection: Connection, query: Executable, name: str, values: Iterable[Any]) -> list[ResultRow]:
    """Return the rows of a query with `in_list(…, name)` for any number of values.

    SQLite limits the number of values in one statement.
    """
    listed = list(values)
    rows: list[ResultRow] = []
    for start in range(0, len(listed), MAX_STATEMENT_VALUES):
        rows += connection.execute(query, {name: listed[start : start + MAX_STATEMENT_VALUES]}).all()
    return rows


def row_by_row(connection: Runs) -> None:
    """Make the rest of this transaction look up rows by index, one after the other, as SQLite does.

    PostgreSQL cannot estimate how few rows a step down a tree yields, and would read the whole table at each.
    """
    if isinstance(connection, Connection) and connection.dialect.name == "postgresql":
        connection.execute(select(*(func.set_config(f"enable_{how}", "off", True) for how in ("hashjoin", "mergejoin", "seqscan"))))


def driver_rows(connection: Connection, query: Executable, step: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Yield the rows of a query as the driver returns them, `step` at a time, with at most that number in memory."""
    with connection.execute(query, execution_options=LITTLE_BY_LITTLE) as result:
        while rows := result.cursor_strategy.fetchmany(result, result.cursor, step):
            yield rows


class Upsert:
    """Insert rows. If the key exists, update the row to the result of `changes` for the given row."""

    def __init__(self, table: Table, key: Sequence[str], changes: Callable[[Excluded], Mapping[str, Any]]) -> None:
        on_sqlite, on_postgresql = sqlite.insert(table), postgresql.insert(table)
        self._statements: dict[str, Executable] = {
            "sqlite": on_sqlite.on_conflict_do_update(index_elements=key, set_=dict(changes(on_sqlite.excluded))),
            "postgresql": on_postgresql.on_conflict_do_update(index_elements=key, set_=dict(changes(on_postgresql.excluded))),
        }

    def __call__(self, connection: Connection, rows: Rows) -> None:
        """Insert or update `rows`."""
        if rows:
            connection.execute(self._statements[connection.dialect.name], list(rows))


class BulkInsert:
    """Insert rows at the speed of the driver: plain tuples in the order of `columns`, by default the table's columns."""

    def __init__(self, table: Table, columns: Sequence[str] | None = None) -> None:
        self._names = list(columns or table.columns.keys())
        # `insert` orders its values by the columns of its table.
        self._table = table_clause(table.name, *(column(name, table.columns[name].type) for name in self._names))
        self._compiled: dict[str, str] = {}

    def __call__(self, connection: Runs, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert `rows` in one driver call."""
        if not rows:
            return
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(self._statement(connection), list(rows))
        elif len(rows) <= MAX_INSERT_ROWS or isinstance(connection, DriverConnection):
            connection.exec_driver_sql(self._statement(connection), [dict(zip(self._names, row, strict=True)) for row in rows])
        else:
            from headrace.store.dialects.postgresql import copy  # imported late because the driver is an extra

            quoted = ", ".join(map(connection.dialect.identifier_preparer.quote, self._names))
            copy(connection, f"COPY {self._table.name} ({quoted}) FROM STDIN", rows)

    def _statement(self, connection: Runs) -> str:
        name = connection.dialect.name
        if name not in self._compiled:
            dialect = make_url("sqlite://" if name == "sqlite" else "postgresql+psycopg://").get_dialect()()
            self._compiled[name] = str(insert(self._table).compile(dialect=dialect, column_keys=self._names))
        return self._compiled[name]


class ValuesQuery:
    """Run `query` over a table `given` of the rows passed to the call, as one statement however many they are.

    `columns` maps its names to PostgreSQL's types. Write `FROM given CROSS JOIN …`: SQLite then looks up each
    row by an index. Otherwise it would read the whole table for a list of pairs.
    """

    def __init__(self, columns: Mapping[str, str], query: str) -> None:
        self._columns = columns
        self._query = query

    def __call__(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> Iterator[ResultRow]:
        """Yield the rows that the query finds for `rows`, in several parts."""
        batch_size = MAX_STATEMENT_VALUES // len(self._columns)
        for start in range(0, len(rows), batch_size):
            yield from self._run(connection, rows[start : start + batch_size])

    def _run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> Sequence[ResultRow]:
        names = ", ".join(self._columns)
        if connection.dialect.name == "sqlite":
            row = f"({', '.join('?' * len(self._columns))})"
            text = f"WITH given({names}) AS (VALUES {', '.join([row] * len(rows))}) {self._query}"
            return connection.exec_driver_sql(text, tuple(chain.from_iterable(rows))).all()
        arrays = ", ".join(f"%({name})s::{kind}[]" for name, kind in self._columns.items())
        text = f"WITH given AS (SELECT * FROM unnest({arrays}) AS rows({names})) {self._query}"  # noqa: S608
        parameters = {name: list(values) for name, values in zip(self._columns, zip(*rows, strict=True), strict=True)}
        return connection.exec_driver_sql(text, parameters).all()


class DriverStatement:
    """A statement in the driver's notation, for callers with thousands of values. It processes no single value.

    `:name` stands for a value, and `IN :name` for any of a list of at most MAX_STATEMENT_VALUES values. `lists` maps a
    list to PostgreSQL's type of its values.
    """

    def __init__(self, query: str, *, postgresql: str | None = None, **lists: str) -> None:
        self._parts = re.split(r":(\w+)", query)
        self._lists = lists
        self._postgresql = re.sub(
            r"(IN )?:(\w+)",
            lambda match: f"= ANY(%({match[2]})s::{lists[match[2]]}[])" if match[1] else f"%({match[2]})s",
            postgresql or query,
        )

    def __call__(self, connection: Runs, **arguments: Any) -> StatementResult:
        """Run the statement. A list may be any sequence."""
        if connection.dialect.name == "sqlite":
            return connection.exec_driver_sql(*self._on_sqlite(arguments))
        return connection.exec_driver_sql(self._postgresql, {**arguments, **{name: list(arguments[name]) for name in self._lists}})

    def each(self, connection: Runs, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run the statement for each row of values.

        The values are in the order in which the query names them. The query names each once, and none is a
        list.
        """
        if not rows:
            return
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("?".join(self._parts[::2]), list(rows))
        else:
            connection.exec_driver_sql(self._postgresql, [dict(zip(self._parts[1::2], row, strict=True)) for row in rows])

    def _on_sqlite(self, arguments: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
        text, values = [self._parts[0]], list[Any]()
        for name, after in zip(self._parts[1::2], self._parts[2::2], strict=True):
            several = name in self._lists
            text += [f"({', '.join('?' * len(arguments[name]))})" if several else "?", after]
            values.extend(arguments[name] if several else (arguments[name],))
        return "".join(text), tuple(values)
