"""Leaves of a pattern on a Column whose values are neither objects nor arrays.

A comparison keeps the Column bare on its left, so that Spark pushes it to Parquet. The JSON of an event has null for NaN and infinite
numbers, and texts for decimals and times.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf

from headrace.core.matching.patterns.operators import AnythingBut, Exists, Leaf, NumericRange, Operator
from headrace.replay.pattern_columns.bounds import ALWAYS, NEVER, UNKNOWN, Bounds, Condition, either, exact, inverse
from headrace.replay.pattern_columns.column_types import MAX_PRECISION, Kind, integer_bounds, kind_of, plain_type, spark_type
from headrace.replay.pattern_columns.texts import passes_text_operator

_NUMBERS: Final = frozenset({Kind.INTEGER, Kind.FLOAT})
_TEXTS: Final = frozenset({Kind.TEXT, Kind.DECIMAL, Kind.DATE, Kind.TIME})
_DIGITS: Final = Context(prec=MAX_PRECISION)


def matches_plain(leaf: Leaf, column: Column, its_type: pa.DataType) -> Bounds:
    """Return the condition that the value of a Column matches a leaf, null included."""
    kind = kind_of(its_type)
    if kind is Kind.UNKNOWN:
        return UNKNOWN  # a map is an array, which may be empty
    if leaf.absent or kind is Kind.NULL:
        return exact(matches_null(leaf))
    value = _Value(column, its_type, kind)
    tests = [value.equals(leaf.values), *(value.passes(operator) for operator in leaf.operators)]
    return either(*tests, exact(value.is_null)) if matches_null(leaf) else either(*tests)


def matches_null(leaf: Leaf) -> bool:
    """Return whether null matches a leaf."""
    return None in leaf.values or any(operator.matches(None) for operator in leaf.operators)


class _Value:
    """A Column as the value that a leaf tests."""

    def __init__(self, column: Column, its_type: pa.DataType, kind: Kind) -> None:
        self._type = its_type
        self._kind = kind
        self._column = column.cast("double") if kind is Kind.FLOAT and not pa.types.is_float64(plain_type(its_type)) else column

    @property
    def is_null(self) -> Column:
        """Whether the value is null in JSON."""
        if self._kind is Kind.FLOAT:
            return self._column.isNull() | sf.isnan(self._column) | (sf.abs(self._column) == math.inf)
        return self._column.isNull()

    def passes(self, operator: Operator) -> Bounds:
        """Return the condition that a value passes an operator. The test of a null may be null."""
        match operator:
            case Exists():
                return ALWAYS
            case AnythingBut(values, operators):
                return inverse(either(self.equals(values), *map(self.passes, operators)))
            case NumericRange():
                return exact(self._in_range(operator)) if self._kind in _NUMBERS else NEVER
        return passes_text_operator(self.text, operator) if self._kind in _TEXTS else NEVER

    def equals(self, keys: Any) -> Bounds:
        """Return the condition that a value equals one of the values with these keys, except null."""
        read = _READ_BY_KIND[self._kind]
        values = [value for key in keys if (value := read(key, self._type)) is not None]
        if self._kind is Kind.FLOAT and 0.0 in values:
            # In a dictionary of Parquet, 0.0 and -0.0 are different values.
            zero = exact((self._column >= -0.0) & (self._column <= 0.0))
            return either(zero, self._is_in([value for value in values if value]))
        return self._is_in(values)

    @property
    def text(self) -> Column:
        """The text of a value in JSON."""
        if self._kind is Kind.TEXT:
            return self._column
        if self._kind is Kind.TIME:
            return _time_text(self._column, plain_type(self._type))
        return self._column.cast("string")

    def _is_in(self, values: list[Any]) -> Bounds:
        if not values:
            return NEVER
        column = self.text if self._kind is Kind.TIME else self._column
        its_type = spark_type(self._type) if self._kind in {Kind.DECIMAL, Kind.DATE} else None
        literals = values if its_type is None else [sf.lit(text).cast(its_type) for text in values]
        return exact(column == literals[0] if len(literals) == 1 else column.isin(literals))

    def _in_range(self, bounds: NumericRange) -> Condition:
        if self._kind is Kind.FLOAT:
            low, high = _float_bounds(bounds)
            return False if low > high else (self._column >= low) & (self._column <= high)
        least, greatest = integer_bounds(self._type)
        first, last = _integer_range(bounds)
        if first > greatest or last < least or first > last:
            return False
        if first == last:
            return self._column == first
        condition: Column | None = self._column >= first if first > least else None
        if last < greatest:
            below = self._column <= last
            condition = below if condition is None else condition & below
        return self._column.isNotNull() if condition is None else condition


def _time_text(column: Column, its_type: pa.DataType) -> Column:
    """Return a time as the JSON encoder writes it: with six digits behind the seconds, or none."""
    if its_type.unit == "ns":
        column = sf.timestamp_micros(sf.call_function("div", column, sf.lit(1_000)))
    whole = sf.date_format(column, "yyyy-MM-dd'T'HH:mm:ss")
    fraction = sf.date_format(column, ".SSSSSS")
    text = sf.concat(whole, sf.when(fraction == ".000000", sf.lit("")).otherwise(fraction))
    return sf.concat(text, sf.lit("Z")) if its_type.tz else text


def _integer_range(bounds: NumericRange) -> tuple[float, float]:
    """Return the first and the last integer in a range; infinite if it has none."""
    (low, exclusive), (high, inclusive) = bounds.low, bounds.high
    first = low if low == -math.inf else math.floor(low) + 1 if exclusive else math.ceil(low)
    last = high if high == math.inf else math.ceil(high) - 1 if inclusive else math.floor(high)
    return first, last


def _float_bounds(bounds: NumericRange) -> tuple[float, float]:
    """Return the least and the greatest finite double in a range. Zeros are -0.0 as the least and 0.0 as the greatest."""
    (low, is_above), (high, is_below) = bounds.low, bounds.high
    least, greatest = _nearest(low), _nearest(high)
    if least < low or (is_above and least == low):
        least = math.nextafter(least, math.inf)
    if greatest > high or (is_below and greatest == high):
        greatest = math.nextafter(greatest, -math.inf)
    return least or -0.0, greatest or 0.0


def _nearest(number: float) -> float:
    """Return the finite double that is nearest to a number."""
    try:
        return min(max(float(number), -sys.float_info.max), sys.float_info.max)
    except OverflowError:
        return sys.float_info.max if number > 0 else -sys.float_info.max


def _boolean(key: Any, its_type: pa.DataType) -> bool | None:
    del its_type
    return key[0] if isinstance(key, tuple) else None


def _integer(key: Any, its_type: pa.DataType) -> int | None:
    if not isinstance(key, int | float) or key != math.floor(key):
        return None
    least, greatest = integer_bounds(its_type)
    return int(key) if least <= key <= greatest else None


def _float(key: Any, its_type: pa.DataType) -> float | None:
    del its_type
    return _nearest(key) if isinstance(key, int | float) and _nearest(key) == key else None


def _text(key: Any, its_type: pa.DataType) -> str | None:
    del its_type
    return key if isinstance(key, str) else None


def _decimal(key: Any, its_type: pa.DataType) -> str | None:
    """Return `key` if it is the text of a decimal of a type."""
    if not isinstance(key, str) or not key.isascii():
        return None
    try:
        number = Decimal(key).quantize(Decimal(1).scaleb(-its_type.scale), context=_DIGITS)
    except InvalidOperation:
        return None
    is_canonical = str(number) == key and bool(number or not number.is_signed())
    return key if is_canonical and len(number.as_tuple().digits) <= its_type.precision else None


def _date(key: Any, its_type: pa.DataType) -> str | None:
    """Return `key` if it is the text of a date."""
    del its_type
    try:
        return key if isinstance(key, str) and date.fromisoformat(key).isoformat() == key else None
    except ValueError:
        return None


_READ_BY_KIND: Final[dict[Kind, Callable[[Any, pa.DataType], Any]]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.FLOAT: _float,
    Kind.TEXT: _text,
    Kind.DECIMAL: _decimal,
    Kind.DATE: _date,
    Kind.TIME: _text,
}
"""How a literal of the column's type is read from the key of a value: None if no value of the column equals it."""
