"""Columns of a history's files as the ordering reads them: ids as texts, moments as µs since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_MICROS: Final = 1_000_000
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE: Final = 2.0**53
"""Up to here a float that is a whole number stands for just that one."""


def as_text(column: pa.Array) -> pa.Array:
    """Return values that name something as texts (bytes as bytes), null where they are null or empty. Raises `pa.ArrowException`.

    A whole number is the same text in a column of floats, which is what libraries make of integers when one is missing.
    """
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return as_text(column.storage)
    if pa.types.is_dictionary(kind):
        return as_text(column.dictionary_decode())
    if pa.types.is_floating(kind):
        text = _of_floats(column.cast(pa.float64()))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        text = column.cast(pa.large_binary())
    else:
        text = column.cast(pa.large_string())
    empty = pc.equal(pc.binary_length(text), 0)
    return pc.if_else(empty, pa.scalar(None, text.type), text) if pc.any(empty).as_py() else text


def _of_floats(column: pa.Array) -> pa.Array:
    column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
    whole = pc.and_(pc.equal(column, pc.trunc(column)), pc.less_equal(pc.abs(column), _WHOLE))
    if pc.all(whole).as_py():  # nulls are left out
        return column.cast(pa.int64()).cast(pa.large_string())
    integers = pc.if_else(whole, column, pa.scalar(0.0)).cast(pa.int64()).cast(pa.large_string())
    return pc.if_else(whole, integers, column.cast(pa.large_string()))


def as_micros(column: pa.Array) -> pa.Array:
    """Return moments as µs: of timestamps, dates, seconds since 1970, or texts as watches read them; null where there is none.

    Raises `pa.ArrowException` where values of this type are no moments.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return as_micros(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_integer(kind):
        return pc.multiply(column.cast(pa.int64()), _MICROS)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _of_seconds(column.cast(pa.float64()))
    if pa.types.is_null(kind):
        return column.cast(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _of_texts(column.cast(pa.string()))
    raise pa.ArrowTypeError(f"a column of type {kind} has no times")


def _of_seconds(seconds: pa.Array) -> pa.Array:
    micros = pc.multiply(seconds, float(_MICROS))
    sensible = pc.less(pc.abs(micros), 2.0**62)  # not for infinity, nor for what is no number
    return pc.if_else(sensible, micros, pa.scalar(None, pa.float64())).cast(pa.int64(), safe=False)


def _of_texts(texts: pa.Array) -> pa.Array:
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            return texts.cast(kind).cast(pa.int64())
        except pa.ArrowInvalid:
            continue  # they are not all written this way
    return pa.array([_of_text(text) for text in texts.to_pylist()], pa.int64())


def _of_text(text: str | None) -> int | None:
    """Return the moment that a text says; None where it says none."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return int(float(text) * _MICROS)
        except (ValueError, OverflowError):
            return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
