"""Which rows surely have the fields that a watch declares. Spark counts these; the driver reads the fields of all other rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf

from headrace.core.matching.envelope import MAX_TEXT, MAX_TYPE, Envelope
from headrace.core.matching.paths import JsonPath
from headrace.replay.pattern_columns.bounds import Condition, all_of, any_of
from headrace.replay.pattern_columns.column_types import Kind, kind_of, plain_type
from headrace.replay.pattern_columns.nested_values import Columns, fields_of

_MAX_SECONDS: Final = 60_000_000_000
"""Seconds before and after 1970 that are in the years 1 to 9999."""
_MOMENT: Final = (
    r"\A[1-8][0-9]{3}-(?:0[1-9]|1[0-2])-[0-3][0-9]T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{3}|\.[0-9]{6})?"
    r"(?:Z|[+-](?:0[0-9]|1[0-3]):[0-5][0-9])\z"
)
_DATE_CHARS: Final = 10
_Test = Callable[[Column, pa.DataType], Condition]


def surely_has_fields(envelope: Envelope, columns: Columns) -> Condition:
    """Return a condition that is true only for rows whose declared fields all exist and are valid."""
    tests: list[Condition] = [
        _has(path, columns, test)
        for path, test in (
            (envelope.id, _is_name),
            (envelope.source, _is_name),
            (envelope.type, _is_type),
            (envelope.subject, _is_text),
            (envelope.occurred, _is_moment),
        )
        if isinstance(path, JsonPath)
    ]
    if envelope.follows is not None:
        tests.append(_has(envelope.follows, columns, _is_name_or_empty))
    return all_of(tests)


def lacks_a_field(envelope: Envelope, columns: Columns) -> bool:
    """Return whether no row can have all declared fields, because the columns do not have them."""
    required = (envelope.id, envelope.source, envelope.type, envelope.subject, envelope.occurred)
    return any(isinstance(path, JsonPath) and not _may_exist(path, columns) for path in required)


def _may_exist(path: JsonPath, columns: Columns) -> bool:
    first, *steps = path.steps
    if not isinstance(first, str) or first not in columns:
        return False
    its_type = columns[first][1]
    for step in steps:
        match kind_of(its_type):
            case Kind.OBJECT if isinstance(step, str):
                at = plain_type(its_type).get_field_index(step)
                if at < 0:
                    return False
                its_type = plain_type(its_type).field(at).type
            case Kind.OBJECT:
                return False
            case Kind.ARRAY | Kind.UNKNOWN:
                return True
            case _:
                return False
    return True


def _has(path: JsonPath, columns: Columns, test: _Test) -> Condition:
    column: Column | None = None
    its_type: pa.DataType = pa.null()
    for step in path.steps:
        if not isinstance(step, str) or step not in columns:
            return False
        column, its_type = columns[step]
        columns = fields_of(column, its_type) if kind_of(its_type) is Kind.OBJECT else {}
    return False if column is None else test(column, its_type)


def _is_name(column: Column, its_type: pa.DataType) -> Condition:
    return _is_short_text(column, its_type, MAX_TEXT)


def _is_type(column: Column, its_type: pa.DataType) -> Condition:
    return _is_short_text(column, its_type, MAX_TYPE)


def _is_name_or_empty(column: Column, its_type: pa.DataType) -> Condition:
    empty = [column == ""] if kind_of(its_type) is Kind.TEXT else []
    return any_of([column.isNull(), *empty, _is_name(column, its_type)])


def _is_short_text(column: Column, its_type: pa.DataType, max_chars: int) -> Condition:
    if kind_of(its_type) is not Kind.TEXT:
        return _is_text(column, its_type)
    return all_of([_is_text(column, its_type), column != "", sf.octet_length(column) <= max_chars])


def _is_text(column: Column, its_type: pa.DataType) -> Condition:
    kind = kind_of(its_type)
    if kind is Kind.TEXT:
        return ~column.contains("\0")
    if kind is Kind.FLOAT:
        return _is_finite(column)
    return column.isNotNull() if kind in {Kind.INTEGER, Kind.DECIMAL, Kind.DATE, Kind.TIME} else False


def _is_moment(column: Column, its_type: pa.DataType) -> Condition:
    match kind_of(its_type):
        case Kind.INTEGER | Kind.FLOAT:
            return column.between(-_MAX_SECONDS, _MAX_SECONDS)
        case Kind.TIME:
            return column.isNotNull() if plain_type(its_type).tz else False
        case Kind.TEXT:
            return column.rlike(_MOMENT) & sf.substring(column, 1, _DATE_CHARS).try_cast("date").isNotNull()
    return False


def _is_finite(column: Column) -> Column:
    return sf.abs(column) < float("inf")
