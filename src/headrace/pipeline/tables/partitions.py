"""The columns that partition a table: checks that Delta and Iceberg share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.tables.column_types import type_name, unfit

OTHER_PARTITIONS: Final = "Delete partition_by= or correct it, or give the pipeline another table; then redrive its dead letter."

MAX_NAME_BYTES: Final = 255
"""Maximum of the name of a file on common file systems."""


def check_partition_columns(what: str, declared: Sequence[str], rows: pa.Schema) -> None:
    """Check that rows of this schema can be partitioned by the declared columns. `what` names the table.

    Raises:
        TypeConflict: A column is missing, or has a type without exact values, or no other column is left.
    """
    for column in declared:
        if column not in rows.names:
            raise unfit(what, f"the rows have no column {column!r}, which partition_by= names", hint=OTHER_PARTITIONS)
        kind = rows.field(column).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_boolean(kind)):
            reason = f"its column {column!r} of partition_by= is {type_name(kind)}, and no date, text, integer or boolean"
            raise unfit(what, reason, hint=OTHER_PARTITIONS)
    if declared and len(declared) == len(rows.names):
        raise unfit(what, "partition_by= names all its columns", hint=OTHER_PARTITIONS)


def check_partitioning(what: str, declared: Sequence[str], known: Sequence[str]) -> None:
    """Check that the table is partitioned by the declared columns. A pipeline that declares none writes the table as it is.

    Raises:
        TypeConflict: They are others.
    """
    if declared and list(declared) != list(known):
        is_now = f"partitioned by {', '.join(known)}" if known else "not partitioned"
        raise unfit(what, f"it is {is_now}, and partition_by= declares {', '.join(declared)}", hint=OTHER_PARTITIONS)


def check_folder_names(what: str, columns: Sequence[str], rows: pa.Table, folder_name: Callable[[str, str], str]) -> None:
    """Check that the folder of each text in the partition columns has a name that a file system takes.

    `folder_name` returns that of a column and its value, in which the format percent-encodes the value.

    Raises:
        TypeConflict: One is too long.
    """
    for column in columns:
        if column not in rows.column_names or not pa.types.is_string(rows.schema.field(column).type):
            continue
        for value in pc.unique(rows.column(column)).to_pylist():
            if value is not None and len(folder_name(column, value).encode()) > MAX_NAME_BYTES:
                reason = f"the column {column!r} partitions it, and its value {value[:40]!r} … is too long for the name of a folder"
                raise unfit(what, reason, "Shorten it in the pipeline; then redrive its dead letter.")
