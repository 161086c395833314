"""Convert columns of a history's files to the ordering's types: ids as text, times as µs since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_MICROS: Final = 1_000_000
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_EXACT_FLOAT: Final = 2.0**53
"""Up to this value, each whole number has its own float."""


def as_text(column: pa.Array) -> pa.Array:
    """Return ids as text (bytes as bytes), null if they are null or empty. Raises `pa.ArrowException`.

    A whole number in a column of floats has the same text as an integer: libraries convert integers to floats if one is
    missing.
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
    whole = pc.and_(pc.equal(column, pc.trunc(column)), pc.less_equal(pc.abs(column), _MAX_EXACT_FLOAT))
    if pc.all(whole).as_py():  # nulls are ignored
        return column.cast(pa.int64()).cast(pa.large_string())
    integers = pc.if_else(whole, column, pa.scalar(0.0)).cast(pa.int64()).cast(pa.large_string())
    return pc.if_else(whole, integers, column.cast(pa.large_string()))


def as_micros(column: pa.Array) -> pa.Array:
    """Return times as µs, from timestamps, dates, seconds since 1970, or text as in watches; null if there is none.

    Raises `pa.ArrowException` if values of this type cannot be times.
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
    sensible = pc.less(pc.abs(micros), 2.0**62)  # excludes infinity and NaN
    return pc.if_else(sensible, micros, pa.scalar(None, pa.float64())).cast(pa.int64(), safe=False)


def _of_texts(texts: pa.Array) -> pa.Array:
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            return texts.cast(kind).cast(pa.int64())
        except pa.ArrowInvalid:
            continue  # they do not all have this format
    return pa.array([_of_text(text) for text in texts.to_pylist()], pa.int64())


def _of_text(text: str | None) -> int | None:
    """Return the time in a text as µs, or None if it is not a time."""
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
