"""Column paths: a column of rows, or a path into one."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.matching.paths import JsonPath


def steps_of(path: str) -> tuple[str | int, ...]:
    """Return the column of a path, then the nested fields."""
    return JsonPath.parse(path).steps if path.startswith("$") else (path,)


def value_at(rows: pa.Table | pa.RecordBatch, path: str) -> Any:
    """Return the values at a path. Raises KeyError if the path does not exist."""
    column, *fields = steps_of(path)
    if column not in rows.schema.names:
        raise KeyError(path)
    try:
        return reduce(_field, fields, rows.column(column))
    except pa.ArrowException as error:
        raise KeyError(path) from error


def _field(column: Any, name: str | int) -> Any:
    if isinstance(name, int):
        raise pa.ArrowInvalid("a column has no place by number")
    return pc.struct_field(column, name)
