"""Read rows as Arrow columns. The database joins the values of each column, so that no value becomes a Python object.

A column of integers arrives as one text of numbers, and a column of texts as the lengths of its values and one text with all of them.
Digests arrive as one hexadecimal text, because they have one length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import ColumnElement, case, func, literal_column

from headrace.core.identity import KEY_BYTES
from headrace.store.dialects.statements import byte_length, hexadecimal, joined

Numbers = npt.NDArray[np.int64]

_DIGITS: Final = 2 * KEY_BYTES
_NO_DIGEST: Final = "-" * _DIGITS


def joined_numbers(column: ColumnElement[Any]) -> ColumnElement[str]:
    """Return the expression for a column of integers without nulls, for `numbers`."""
    return joined(column, ",")


def numbers(text: str | None) -> Numbers:
    """Return the integers of a joined column. None is a column without rows."""
    return np.fromstring(text or "", dtype=np.int64, sep=",")


def joined_columns(columns: Iterable[ColumnElement[Any]], schema: pa.Schema) -> list[ColumnElement[str]]:
    """Return the expressions of a query for `batch_of`: the columns of the schema, each joined."""
    expressions: list[ColumnElement[str]] = []
    for column, field in zip(columns, schema, strict=True):
        if pa.types.is_binary(field.type):
            digits = hexadecimal(column)
            or_none = case((column.is_(None), literal_column(f"'{_NO_DIGEST}'")), else_=digits)
            expressions.append(joined(or_none if field.nullable else digits))
        elif pa.types.is_string(field.type):
            length = func.coalesce(byte_length(column), -1) if field.nullable else byte_length(column)
            expressions += [joined_numbers(length), joined(column)]
        else:
            expressions.append(joined_numbers(column))
    return expressions


def batch_of(row: Sequence[str | None], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a query of `joined_columns`, in ascending order of the first column, whose values are unique."""
    values = iter(row)
    batch = pa.RecordBatch.from_arrays([_column(field, values) for field in schema], schema=schema)
    order = batch.column(0).to_numpy()
    return batch if np.all(order[1:] > order[:-1]) else batch.take(pa.array(np.argsort(order)))


def _column(field: pa.Field, values: Iterator[str | None]) -> pa.Array:
    """Return the next column, and take its values."""
    if pa.types.is_binary(field.type):
        digests = np.frombuffer((next(values) or "").encode(), f"S{_DIGITS}")
        is_null = digests == _NO_DIGEST.encode()
        data = bytes.fromhex(digests[~is_null].tobytes().decode())
        return _with_lengths(field, np.where(is_null, -1, KEY_BYTES), data)
    if pa.types.is_string(field.type):
        return _with_lengths(field, numbers(next(values)), (next(values) or "").encode())
    return pa.array(numbers(next(values))).view(field.type)


def _with_lengths(field: pa.Field, lengths: Numbers, data: bytes) -> pa.Array:
    """Return the values of these lengths, -1 for null, that `data` has one after the other."""
    is_null = lengths < 0
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    if offsets[-1] != len(data):
        raise ValueError(f"The values of the column {field.name!r} have {len(data)} bytes, and their lengths sum up to {offsets[-1]}.")
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
    return pa.Array.from_buffers(field.type, len(lengths), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])
