"""JSON payloads as columns without Spark: Arrow's parser takes a quarter of the processor time of `from_json`, and no heap of the JVM's.

It refuses whatever it would not read just as `from_json` does: a number where text is declared, a field named twice, a number beyond its
type. Then it is left to Spark, which has a rule for each of these.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

MOST: Final = 256 * 1024 * 1024
"""Bytes of payloads that are parsed here at most: they are in memory once more meanwhile."""

_INT64_END: Final = 2.0**63
_TEXT: Final = StringType()
_BLOCK: Final = 4 * 1024 * 1024
_ALIKE: Final[dict[type[DataType], DataType]] = {
    type(kind): kind for kind in (StringType(), LongType(), IntegerType(), DoubleType(), BooleanType())
}


def shown(schema: StructType, unknown: DataType = _TEXT) -> StructType:
    """Return the schema as `from_json` has it, where every part may be null; what was null in all events so far is text."""
    return StructType([StructField(field.name, _shown(field.dataType, unknown)) for field in schema])


def structs(payloads: pa.ChunkedArray, schema: StructType, *, exact: bool) -> pa.StructArray | None:
    """Return the payloads as `from_json` with this schema gives them; None where only Spark can say what that is.

    `exact`: None also where one has a field that the schema has not, or a value where its type is unknown (null).
    """
    if not (_alike(schema, exact) and payloads.nbytes <= MOST and pc.all(pc.starts_with(payloads, "{")).as_py()):
        return None
    rows = payloads.combine_chunks()
    lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows), "\n")[0].as_buffer()
    kinds, wanted = (to_arrow_schema(shown(schema, unknown)) for unknown in (NullType(), _TEXT))
    asked = json.ParseOptions(explicit_schema=kinds, unexpected_field_behavior="error" if exact else "ignore")
    try:
        table = json.read_json(pa.BufferReader(lines), json.ReadOptions(block_size=_BLOCK), asked)
    except pa.ArrowInvalid:
        return None
    columns = [table.column(name).combine_chunks() for name in kinds.names]
    if len(table) != len(rows) or (exact and any(map(_rounded, columns))):
        return None
    return pa.StructArray.from_arrays(columns, fields=list(kinds)).cast(pa.struct(list(wanted)))


def _rounded(column: pa.Array) -> bool:
    """Whether a double in the column may stand for an integer beyond 64 bits, which no double holds."""
    if pa.types.is_struct(column.type):
        return any(map(_rounded, column.flatten()))
    if pa.types.is_list(column.type):
        return _rounded(column.flatten())
    return bool(pa.types.is_float64(column.type) and pc.any(pc.greater_equal(pc.abs(column), _INT64_END)).as_py())


def _shown(kind: DataType, unknown: DataType) -> DataType:
    if isinstance(kind, StructType):
        return shown(kind, unknown)
    if isinstance(kind, ArrayType):
        return ArrayType(_shown(kind.elementType, unknown))
    return unknown if isinstance(kind, NullType) else kind


def _alike(kind: DataType, exact: bool) -> bool:
    """Whether Arrow and Spark read this type alike, or the former not at all."""
    if isinstance(kind, StructType):
        return len(kind) > 0 and len(set(kind.names)) == len(kind) and all(_alike(field.dataType, exact) for field in kind)
    if isinstance(kind, ArrayType):
        return _alike(kind.elementType, exact)
    return (exact and isinstance(kind, NullType)) or _ALIKE.get(type(kind)) == kind
