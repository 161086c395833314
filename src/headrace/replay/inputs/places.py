"""Where a value is in rows: in a column, or on a path into one."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.matching.paths import JsonPath


def steps_of(place: str) -> tuple[str | int, ...]:
    """Return the column that a place names, then the fields on the way down."""
    return JsonPath.parse(place).steps if place.startswith("$") else (place,)


def value_at(rows: pa.Table | pa.RecordBatch, place: str) -> Any:
    """Return the column of the values there. KeyError: there is no such place."""
    column, *fields = steps_of(place)
    if column not in rows.schema.names:
        raise KeyError(place)
    try:
        return reduce(_field, fields, rows.column(column))
    except pa.ArrowException as error:
        raise KeyError(place) from error


def _field(column: Any, name: str | int) -> Any:
    if isinstance(name, int):
        raise pa.ArrowInvalid("a column has no place by number")
    return pc.struct_field(column, name)
