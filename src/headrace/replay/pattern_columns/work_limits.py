"""Which rows surely take fewer steps than `MAX_REPEATED_STEPS` to match. An event that takes more matches no watch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf

from headrace.core.matching.patterns.arrays import CHARS_PER_STEP, MAX_REPEATED_STEPS
from headrace.core.matching.patterns.operators import AnythingBut, Operator, Path
from headrace.core.matching.patterns.parser import EventPattern
from headrace.replay.pattern_columns.bounds import Condition, all_of, column_of
from headrace.replay.pattern_columns.column_types import Kind, kind_of, plain_type
from headrace.replay.pattern_columns.nested_values import Columns, fields_of

_STEPS_PER_TEST: Final = 8
"""Most steps that one operator of a leaf takes for one element of an array, rounded up."""
_FREE_BYTES: Final = 1_000
"""Texts up to this length take no steps."""


def surely_within_limit(patterns: Sequence[EventPattern], columns: Columns) -> Condition:
    """Return a condition that is true only for rows whose arrays and texts are short enough to match all patterns."""
    leaves = [(path, leaf) for pattern in patterns for fields in pattern.alternatives for path, leaf in fields]
    tests = sum(1 + len(leaf.values) + sum(_tests(operator) for operator in leaf.operators) for _, leaf in leaves)
    steps = MAX_REPEATED_STEPS // (2 * _STEPS_PER_TEST * max(1, tests))
    paths = dict.fromkeys(path for path, _ in leaves)
    return all_of(condition for path in paths for condition in _is_short(path, columns, steps))


def _tests(operator: Operator) -> int:
    return 1 + len(operator.operators) if isinstance(operator, AnythingBut) else 1


def _is_short(path: Path, columns: Columns, steps: int) -> Iterator[Condition]:
    if path[0] not in columns:
        return
    column, its_type = columns[path[0]]
    length = int(max(1, steps) ** (1 / max(1, _array_depth(path[1:], its_type))))
    yield from _is_short_value(path[1:], column, its_type, length, steps, is_element=False)


def _array_depth(path: Path, its_type: pa.DataType) -> int:
    """Return the number of arrays around a value."""
    kind = kind_of(its_type)
    if kind is Kind.ARRAY:
        return 1 + _array_depth(path, plain_type(its_type).value_type)
    if kind is not Kind.OBJECT or not path:
        return 0
    fields = {field.name: field.type for field in plain_type(its_type)}
    return _array_depth(path[1:], fields[path[0]]) if path[0] in fields else 0


def _is_short_value(path: Path, column: Column, its_type: pa.DataType, length: int, steps: int, *, is_element: bool) -> Iterator[Condition]:
    kind = kind_of(its_type)
    if kind is Kind.TEXT:
        limit = _FREE_BYTES if is_element else max(_FREE_BYTES, steps * CHARS_PER_STEP)
        yield column.isNull() | (sf.octet_length(column) <= limit)
    elif kind is Kind.OBJECT and path:
        fields = fields_of(column, its_type)
        if path[0] in fields:
            yield from _is_short_value(path[1:], *fields[path[0]], length, steps, is_element=is_element)
    elif kind is Kind.ARRAY:
        element = plain_type(its_type).value_type

        def is_short(each: Column) -> Column:
            return column_of(all_of(_is_short_value(path, each, element, length, steps, is_element=True)))

        yield column.isNull() | ((sf.size(column) <= length) & sf.forall(column, is_short))
