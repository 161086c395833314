"""The Arrow types of a history's columns, as the JSON value that a pattern tests and as the Spark type that reads them."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import pyarrow as pa
from pyspark.sql import types as st

MAX_PRECISION: Final = 38
MAX_PLAIN_SCALE: Final = 6
"""Most digits behind the point with which Python never writes a decimal in scientific notation."""
_INTEGERS: Final[dict[pa.DataType, st.DataType]] = {
    pa.int8(): st.ByteType(),
    pa.int16(): st.ShortType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    pa.uint8(): st.ShortType(),
    pa.uint16(): st.IntegerType(),
    pa.uint32(): st.LongType(),
}
_INTEGER_BITS: Final[dict[st.DataType, int]] = {st.ByteType(): 8, st.ShortType(): 16, st.IntegerType(): 32, st.LongType(): 64}


class Kind(Enum):
    """What a column's values are in the JSON of an event."""

    NULL = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    FLOAT = auto()
    TEXT = auto()
    DECIMAL = auto()
    DATE = auto()
    TIME = auto()
    OBJECT = auto()
    ARRAY = auto()
    UNKNOWN = auto()
    """Values that Spark cannot read, or whose JSON it cannot write: bytes, maps, durations, times in a time zone."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary, or the type itself."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def kind_of(kind: pa.DataType) -> Kind:
    """Return what values of an Arrow type are in JSON."""
    kind = plain_type(kind)
    if pa.types.is_null(kind):
        return Kind.NULL
    if pa.types.is_struct(kind):
        return Kind.OBJECT if spark_type(kind) is not None else Kind.UNKNOWN
    if _is_array(kind):
        return Kind.ARRAY if spark_type(kind) is not None else Kind.UNKNOWN
    if kind in _INTEGERS:
        return Kind.INTEGER
    for test, its_kind in (
        (pa.types.is_boolean, Kind.BOOLEAN),
        (pa.types.is_float32, Kind.FLOAT),
        (pa.types.is_float64, Kind.FLOAT),
        (_is_text, Kind.TEXT),
        (_is_plain_decimal, Kind.DECIMAL),
        (pa.types.is_date, Kind.DATE),
        (_is_plain_time, Kind.TIME),
    ):
        if test(kind):
            return its_kind
    return Kind.UNKNOWN


def spark_type(kind: pa.DataType) -> st.DataType | None:
    """Return the Spark type that reads an Arrow type, or None if patterns on it cannot be evaluated. Fields without a type are left out.

    Times with nanoseconds are read as integers, because Spark has no such times.
    """
    kind = plain_type(kind)
    if kind in _INTEGERS:
        return _INTEGERS[kind]
    if pa.types.is_struct(kind):
        fields = [(field.name, spark_type(field.type)) for field in kind if kind.get_field_index(field.name) >= 0]
        known = [st.StructField(name, its_type) for name, its_type in fields if its_type is not None]
        return st.StructType(known) if known else None
    if _is_array(kind):
        element = spark_type(kind.value_type)
        return None if element is None else st.ArrayType(element)
    return _spark_scalar(kind)


def integer_bounds(kind: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest integer of the Spark type that reads an Arrow type."""
    bits = _INTEGER_BITS[_INTEGERS[plain_type(kind)]]
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _spark_scalar(kind: pa.DataType) -> st.DataType | None:
    if pa.types.is_boolean(kind):
        return st.BooleanType()
    if pa.types.is_float32(kind):
        return st.FloatType()
    if pa.types.is_float64(kind):
        return st.DoubleType()
    if _is_text(kind):
        return st.StringType()
    if _is_plain_decimal(kind):
        return st.DecimalType(kind.precision, kind.scale)
    if pa.types.is_date(kind):
        return st.DateType()
    if _is_plain_time(kind):
        return st.LongType() if kind.unit == "ns" else st.TimestampType() if kind.tz else st.TimestampNTZType()
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_array(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_plain_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind)) and kind.precision <= MAX_PRECISION and 0 <= kind.scale <= MAX_PLAIN_SCALE


def _is_plain_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz in {None, "UTC"}
