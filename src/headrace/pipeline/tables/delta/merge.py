"""Keyed Delta tables: a run replaces the rows of the keys of its events.

One merge deletes the earlier rows of these keys and inserts the new ones, so that readers see the rows before the run or after it. Its
source has a row for each key, which matches the rows to delete, and the new rows, which match none.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.schema import Field
from pyarrow.dataset import FileSystemDataset

from headrace.pipeline.tables.column_types import canonical, check_declared, conformed, mismatch


def check_columns(name: str, table: DeltaTable, declared: pa.Schema) -> list[Field]:
    """Compare the declared columns with those of the table; return the declared ones that it does not have.

    Raises:
        TypeConflict: A column has another type in the table, or is not declared, or the table is partitioned.
    """
    partitioned = table.metadata().partition_columns
    if partitioned:
        raise mismatch(name, f"the table is partitioned by {', '.join(partitioned)}, which a keyed table is not")
    known = canonical(pa.schema(table.schema().to_arrow()))
    return [Field.from_arrow(field) for field in check_declared(name, known, declared)]


def rows_of_keys(table: DeltaTable, keys: pa.Table, columns: pa.Schema, name: str) -> pa.Table:
    """Return the table's rows of these keys, with the declared columns. Files whose statistics exclude the keys are not read."""
    names = keys.column_names
    # Without the cast, pyarrow would compare the values with statistics of another type of text, which it cannot.
    values = {each: pc.field(each).cast(keys.schema.field(each).type) for each in names}
    condition = reduce(and_, (value.isin(keys.column(each).combine_chunks()) for each, value in values.items()))
    present = canonical(pa.schema(table.schema().to_arrow()))
    whole, files = table.to_pyarrow_dataset(schema=present), _files_of_keys(table, keys)
    fragments = [each for each in whole.get_fragments() if unquote(each.path) in files]
    some = FileSystemDataset(fragments, present, whole.format, whole.filesystem)
    rows = conformed(some.to_table(filter=condition), columns, name)
    return rows if len(names) == 1 else _rows_of_combinations(rows, keys)


def _rows_of_combinations(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows with the exact keys. pyarrow joins no nested columns, so it joins the numbers of the rows."""
    names = [f"{number}" for number in range(keys.num_columns)]
    numbered = pa.table([*rows.select(keys.column_names).columns, pa.array(range(rows.num_rows), pa.int64())], names=[*names, "row"])
    return rows.take(numbered.join(keys.rename_columns(names), names, join_type="left semi").column("row"))


def _files_of_keys(table: DeltaTable, keys: pa.Table) -> set[str]:
    """Return the files that may have one of the keys, by the range of each column of the key.

    Statistics of other types than these are not exact: those of times, for example, end with the millisecond.
    """
    actions = pa.table(table.get_add_actions(flatten=True))
    may_have = pa.array([True] * actions.num_rows, pa.bool_())
    for name in keys.column_names if keys.num_rows else ():
        kind = keys.schema.field(name).type
        is_exact = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)
        if is_exact and f"min.{name}" in actions.column_names:
            ends = pc.min_max(keys.column(name))
            above = pc.greater_equal(ends["max"], actions.column(f"min.{name}").cast(kind))
            below = pc.less_equal(ends["min"], actions.column(f"max.{name}").cast(kind))
            may_have = pc.and_(may_have, pc.fill_null(pc.and_(above, below), True))
    return {unquote(path) for path in actions.filter(may_have).column("path").to_pylist()}


def merge(
    table: DeltaTable,
    keys: pa.Table,
    rows: pa.Table,
    *,
    commit_properties: CommitProperties,
    post_commithook_properties: PostCommitHookProperties,
) -> None:
    """Replace the rows of these keys by `rows`, in one commit to the table as it was loaded."""
    deleted = pa.Table.from_arrays([_column(keys, field) for field in rows.schema], schema=rows.schema)
    is_new = "headrace is new"  # the column that distinguishes new rows from keys
    while is_new in rows.column_names:
        is_new += "'"
    marks = pa.array([False] * deleted.num_rows + [True] * rows.num_rows, pa.bool_())
    source = pa.concat_tables([deleted, rows]).append_column(is_new, marks)
    same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in keys.column_names)
    merger = table.merge(
        source,
        f"{same} AND NOT s.{_quoted(is_new)}",
        source_alias="s",
        target_alias="t",
        commit_properties=commit_properties,
        post_commithook_properties=post_commithook_properties,
    )
    inserted = {_quoted(field.name): f"s.{_quoted(field.name)}" for field in rows.schema}
    merger.when_matched_delete().when_not_matched_insert(inserted, predicate=f"s.{_quoted(is_new)}").execute()


def _column(keys: pa.Table, field: pa.Field) -> pa.Array:
    if field.name in keys.column_names:
        return keys.column(field.name).combine_chunks()
    return pa.nulls(keys.num_rows, field.type)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
