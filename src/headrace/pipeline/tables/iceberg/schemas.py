"""The types of Iceberg tables, in the form in which rows are compared with tables.

Iceberg has no integers of 8 or 16 bits: such columns have 32 bits in a table. Its times with a zone are in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from headrace.errors import TypeConflict
from headrace.pipeline.tables.column_types import canonical, type_name


def table_schema(schema: Schema) -> pa.Schema:
    """Return the columns of a table."""
    return canonical(schema_to_pyarrow(schema, include_field_ids=False))


def required(schema: Schema) -> list[str]:
    """Return the columns of a table that are never null."""
    return [field.name for field in schema.fields if field.required]


def iceberg_schema(rows: pa.Schema, table: str) -> pa.Schema:
    """Return the columns that a table has for rows of this schema.

    Raises:
        TypeConflict: Iceberg has no type for the values of a column.
    """
    return pa.schema([pa.field(field.name, _iceberg_type(field.type, field.name, table)) for field in canonical(rows)])


def partitioned_schema(columns: pa.Schema, partition_by: Sequence[str]) -> tuple[Schema, PartitionSpec]:
    """Return the schema of a new table, with the numbers of its fields, and its partitions by the values of these columns."""
    converted = Catalog._convert_schema_if_needed(columns)  # noqa: SLF001  pyiceberg has no public call for columns without numbers
    schema = assign_fresh_schema_ids(converted)
    fields = [
        PartitionField(schema.find_field(name).field_id, PARTITION_FIELD_ID_START + number, IdentityTransform(), name)
        for number, name in enumerate(partition_by)
    ]
    return schema, PartitionSpec(*fields)


def is_local(table: Table) -> bool:
    """Return whether the files of a table are in a file system."""
    return urlsplit(table.location()).scheme in {"", "file"}


def partition_columns(table: Table) -> list[str]:
    """Return the columns that partition a table, or the transform of a column where it is not partitioned by its values."""
    names = [(table.schema().find_column_name(field.source_id) or "?", field.transform) for field in table.spec().fields]
    return [name if isinstance(transform, IdentityTransform) else f"{transform}({name})" for name, transform in names]


def _iceberg_type(kind: pa.DataType, column: str, table: str) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _iceberg_type(field.type, column, table)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_iceberg_type(kind.key_type, column, table), _iceberg_type(kind.item_type, column, table))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _iceberg_type(kind.value_type, column, table)))
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    exact = pa.types.is_boolean, pa.types.is_int32, pa.types.is_int64, pa.types.is_float32, pa.types.is_float64, pa.types.is_decimal128
    others = pa.types.is_string, pa.types.is_binary, pa.types.is_date32, pa.types.is_null
    if any(check(kind) for check in (*exact, *others)):
        return kind
    raise TypeConflict(
        f"its rows do not fit the Iceberg table {table!r}: Iceberg has no type for the column {column!r} ({type_name(kind)}).",
        hint="Cast it in the pipeline, for example to a number or to text; then redrive the dead letter.",
    )
