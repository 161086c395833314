"""Check whether rows fit a table: the names and types of their columns.

A table's column keeps its type. A narrower type of the rows is widened if no value changes; any other difference is
rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from headrace.errors import PipelineError, TypeConflict

OTHER_COLUMNS: Final = (
    "Say evolve=True at the pipeline, change the table (ALTER TABLE … ADD COLUMN), or give the pipeline another table; then redrive its "
    "dead letter."
)
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
"""The decimal digits of an integer, by its number of bits."""
_MAX_EXAMPLES: Final = 3


def check_names(schema: StructType) -> None:
    """Raise `TypeConflict` if two columns, or two fields of one struct, have the same name. Like Spark, ignore case."""
    for where, struct in _structs("", schema):
        counts = Counter(name.lower() for name in struct.names)
        double = [name for name in struct.names if counts[name.lower()] > 1]
        if double:
            kind = f"the column {where!r} has fields" if where else "it returns columns"
            raise TypeConflict(
                f"{kind} of one name: {', '.join(map(repr, double))}.",
                hint="Rename one with .alias(...), or select the fields one by one; then redrive the dead letter.",
            )


def canonical(schema: pa.Schema) -> pa.Schema:
    """Return the schema in a table's form: every value is nullable, and each type has one spelling."""
    return pa.schema([pa.field(field.name, _canonical(field.type)) for field in schema])


def widened(table: pa.Schema, rows: pa.Schema, name: str) -> pa.Schema:
    """Return the schema of the table `name` once it has these rows: its own columns, then new ones. Both are canonical.

    Raises:
        TypeConflict: A type of the rows does not fit.
    """
    fields = {field.name: field.type for field in table}
    spelled = {known.lower(): known for known in fields}
    for field in rows:
        known = spelled.get(field.name.lower(), field.name)
        if known != field.name:
            raise _conflict(name, f"the column {field.name!r} is {known!r} in the table, and readers treat both as one")
        kind = _common_type(fields[known], field.type) if known in fields else field.type
        if kind is None:
            raise _conflict(
                name, f"the column {known!r} is {type_name(fields[known])} in the table and {type_name(field.type)} in the rows"
            )
        if _has_null(kind):
            raise _conflict(name, f"the column {known!r} is null in all rows and has no type")
        fields[known] = kind
    return pa.schema(list(fields.items()))


def conformed(rows: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """Return the rows with the columns and types of the table `name`; missing columns are null.

    Raises:
        TypeConflict: A number has no exact equivalent in the type of its column.
    """
    if rows.schema.equals(schema):
        return rows
    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowInvalid as error:
            reason = f"the column {field.name!r} is {type_name(field.type)} in the table and {type_name(column.type)} in the rows: {error}"
            raise _conflict(name, reason) from error
    return pa.table(columns, schema=schema)


def fitting(known: pa.Schema, rows: pa.Schema, what: str, name: str, never_null: Sequence[str], *, evolve: bool) -> pa.Schema:
    """Return the columns of the table `name` for these rows, with the additions that `evolve` admits. Both schemas are canonical.

    `what` describes the table, and `never_null` are its columns that have a value in each row.

    Raises:
        TypeConflict: The rows do not fit.
    """
    both = widened(known, rows, name)
    more = [f"{field.name!r} ({type_name(field.type)})" for field in both if field not in known]
    if more and not evolve:
        raise unfit(what, f"it has not the columns or fields of {', '.join(more)}")
    missing = [column for column in never_null if column not in rows.names]
    if missing:
        raise unfit(what, f"the rows have not its column {missing[0]!r}, which is never null")
    return both


def unfit(what: str, reason: str, hint: str = OTHER_COLUMNS) -> TypeConflict:
    """Return the error of rows that do not fit a table, which `what` describes."""
    return TypeConflict(f"its rows do not fit the {what}: {reason}.", hint=hint)


def check_declared(name: str, table: pa.Schema, declared: pa.Schema) -> list[pa.Field]:
    """Compare the declared columns with those of the table; return the declared ones that it does not have. Both are canonical.

    Raises:
        TypeConflict: A column has another type in the table, or is not declared.
    """
    for field in table:
        if field.name not in declared.names:
            raise mismatch(name, f"the table has the column {field.name!r} ({type_name(field.type)}), which columns= does not declare")
        if declared.field(field.name).type != field.type:
            declares = type_name(declared.field(field.name).type)
            raise mismatch(name, f"the column {field.name!r} is {type_name(field.type)} in the table, and columns= declares {declares}")
    return [field for field in declared if field.name not in table.names]


def check_rows(result: DataFrame, keys: pa.Table, columns: pa.Schema, name: str) -> pa.Table:
    """Return the computed rows with the declared columns of the table `name`; missing columns are null.

    Raises:
        TypeConflict: A column is not declared, or has another type.
        PipelineError: The key of a row is not that of an event of the run.
    """
    check_names(result.schema)
    rows = result.toArrow()
    schema = canonical(rows.schema)
    undeclared = [field.name for field in widened(columns, schema, name) if field.name not in columns.names]
    if undeclared:
        raise mismatch(name, f"the rows have the column {undeclared[0]!r}, which columns= does not declare")
    rows = conformed(rows.cast(schema), columns, name)
    others = rows.select(keys.column_names).join(keys, keys.column_names, join_type="left anti")
    if others.num_rows:
        examples = ", ".join(str(tuple(row.values())) for row in others.slice(0, _MAX_EXAMPLES).to_pylist())
        raise PipelineError(
            f"it returns {others.num_rows:,} rows of the keyed table {name!r} whose key ({', '.join(keys.column_names)}) no event of the "
            f"run has: {examples}.",
            hint="Return rows for the keys of the events alone. Events whose key is null have no rows: drop them.",
        )
    return rows


def mismatch(name: str, reason: str) -> TypeConflict:
    """Return the error of a keyed table `name` whose columns are not those of the declaration."""
    return TypeConflict(
        f"its columns do not fit the table {name!r}: {reason}.",
        hint="Correct columns= or the rows of the pipeline, or give it another table; then redrive its dead letter.",
    )


def type_name(kind: pa.DataType) -> str:
    """Return Spark's name of the type."""
    try:
        return str(from_arrow_type(kind).simpleString())
    except Exception:  # PySpark raises errors of several classes for types that it does not have
        return str(kind)


def _conflict(table: str, reason: str) -> TypeConflict:
    return TypeConflict(
        f"its rows do not fit the table {table!r}: {reason}.",
        hint="Cast the column in the pipeline, or give the pipeline another table; then redrive its dead letter.",
    )


def _structs(where: str, kind: DataType) -> list[tuple[str, StructType]]:
    """Return the type's structs, each with its path."""
    if isinstance(kind, StructType):
        inner = [_structs(f"{where}.{field.name}" if where else field.name, field.dataType) for field in kind]
        return [(where, kind), *(each for structs in inner for each in structs)]
    if isinstance(kind, ArrayType):
        return _structs(where, kind.elementType)
    if isinstance(kind, MapType):
        return [*_structs(where, kind.keyType), *_structs(where, kind.valueType)]
    return []


def _canonical(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _canonical(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_canonical(kind.key_type), _canonical(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(pa.field("element", _canonical(kind.value_type)))
    if pa.types.is_dictionary(kind):
        return _canonical(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) else kind


def _common_type(table: pa.DataType, rows: pa.DataType) -> pa.DataType | None:
    """Return the type of a table's column that also takes these rows, or None if they do not fit."""
    if table == rows or pa.types.is_null(rows):
        return table
    if pa.types.is_struct(table) and pa.types.is_struct(rows):
        return _common_struct(table, rows)
    if pa.types.is_list(table) and pa.types.is_list(rows):
        element = _common_type(table.value_type, rows.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    if pa.types.is_map(table) and pa.types.is_map(rows):
        key, item = _common_type(table.key_type, rows.key_type), _common_type(table.item_type, rows.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return table if _represents(table, rows) else None


def _common_struct(table: pa.StructType, rows: pa.StructType) -> pa.DataType | None:
    fields = {field.name: field.type for field in table}
    spelled = {known.lower(): known for known in fields}
    for field in rows:
        if spelled.get(field.name.lower(), field.name) != field.name:
            return None
        kind = _common_type(fields[field.name], field.type) if field.name in fields else field.type
        if kind is None:
            return None
        fields[field.name] = kind
    return pa.struct(list(fields.items()))


def _represents(table: pa.DataType, rows: pa.DataType) -> bool:
    """Return whether the table's type represents each value of the other type, or, for integers in floating point, may represent it."""
    if pa.types.is_signed_integer(rows):
        if pa.types.is_decimal(table):
            return bool(table.precision - table.scale >= _DIGITS[rows.bit_width])
        wider = pa.types.is_signed_integer(table) and table.bit_width > rows.bit_width
        return bool(wider or pa.types.is_float64(table) or pa.types.is_float32(table))
    if pa.types.is_decimal(rows) and pa.types.is_decimal(table):
        return bool(table.scale >= rows.scale and table.precision - table.scale >= rows.precision - rows.scale)
    return bool(pa.types.is_float32(rows) and pa.types.is_float64(table))


def _has_null(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_null(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _has_null(kind.key_type) or _has_null(kind.item_type)
    return _has_null(kind.value_type) if pa.types.is_list(kind) else pa.types.is_null(kind)
