"""Infer the types of JSON payloads as Spark would, without a Spark job."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

Misfit = tuple[str, DataType, DataType]
"""The path of a field, its known type, and the type of a value that does not fit."""

INT64: Final = range(-(2**63), 2**63)

_KINDS: Final[dict[type, DataType]] = {
    bool: BooleanType(),
    int: LongType(),
    float: DoubleType(),
    str: StringType(),
    type(None): NullType(),
}

_decoder = msgspec.json.Decoder()


class InferenceUndecided(Exception):
    """Only Spark can infer the types of these payloads."""


class OutOfRange(Exception):
    """A payload has a number beyond the range of a double. The message is the number."""


def types_of(payloads: Iterable[str]) -> StructType:
    """Return a struct for all payloads. A field that is null in all of them has type null.

    An integer beyond 64 bits has type string: its text is exact.

    Raises:
        InferenceUndecided: One of them is not an object.
        OutOfRange: One of them has a number beyond the range of a double.
    """
    merged: DataType = StructType([])
    for text in payloads:
        value = _decoded(text)
        if not isinstance(value, dict):
            raise InferenceUndecided
        merged = widest(merged, _type_of(value))
    if not isinstance(merged, StructType):
        raise InferenceUndecided
    return merged


def misfit(known: DataType, inferred: DataType, path: str = "") -> Misfit | None:
    """Return the first field whose values do not fit the known type: its path and both types. A string takes anything, as JSON text."""
    if isinstance(known, StringType | NullType) or isinstance(inferred, NullType):
        return None
    if isinstance(known, StructType) and isinstance(inferred, StructType):
        kinds = {field.name: field.dataType for field in known}
        pairs = ((field, kinds.get(field.name, NullType())) for field in inferred)
        each = (misfit(kind, field.dataType, f"{path}.{field.name}" if path else field.name) for field, kind in pairs)
        return next((odd for odd in each if odd is not None), None)
    if isinstance(known, ArrayType) and isinstance(inferred, ArrayType):
        return misfit(known.elementType, inferred.elementType, f"{path}[]")
    return None if widest(known, inferred) == known else (path, known, inferred)


def widest(one: DataType, other: DataType) -> DataType:
    """Return the narrowest type for the values of both: numbers widen, incompatible types become text."""
    if one == other or isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    if isinstance(one, StructType) and isinstance(other, StructType):
        return merged(one, other)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(widest(one.elementType, other.elementType))
    return DoubleType() if isinstance(one, LongType | DoubleType) and isinstance(other, LongType | DoubleType) else StringType()


def merged(one: StructType, other: StructType) -> StructType:
    """Return a struct with the fields of both, each with the widest type."""
    fields = {field.name: field.dataType for field in one}
    for field in other:
        fields[field.name] = widest(fields.get(field.name, NullType()), field.dataType)
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def in_order(kind: DataType) -> DataType:
    """Return the type with the fields of each struct sorted by name, as in Spark."""
    if isinstance(kind, ArrayType):
        return ArrayType(in_order(kind.elementType))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, in_order(field.dataType)) for field in sorted(kind, key=lambda field: field.name)])
    return kind


def without_nulls(kind: DataType) -> DataType | None:
    """Return the type without fields that were always null, or None if no field is left."""
    if isinstance(kind, NullType):
        return None
    if isinstance(kind, ArrayType):
        element = without_nulls(kind.elementType)
        return None if element is None else ArrayType(element)
    if isinstance(kind, StructType):
        fields = [(field.name, without_nulls(field.dataType)) for field in kind]
        return (
            StructType([StructField(name, left) for name, left in fields if left is not None]) if any(left for _, left in fields) else None
        )
    return kind


def with_text(kind: DataType) -> DataType:
    """Return the type with text in place of decimals, which Spark infers for integers beyond 64 bits."""
    if isinstance(kind, ArrayType):
        return ArrayType(with_text(kind.elementType))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, with_text(field.dataType)) for field in kind])
    return StringType() if isinstance(kind, DecimalType) else kind


def _decoded(text: str) -> Any:
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        return json.loads(text, parse_float=_float)  # the error of msgspec does not name the number


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise OutOfRange(text)
    return value


def _type_of(value: Any) -> DataType:
    if isinstance(value, dict):
        return StructType([StructField(name, _type_of(part)) for name, part in value.items()])
    if isinstance(value, list):
        element: DataType = NullType()
        for part in value:
            element = widest(element, _type_of(part))
        return ArrayType(element)
    if isinstance(value, int) and not isinstance(value, bool) and value not in INT64:
        return StringType()
    return _KINDS[type(value)]
