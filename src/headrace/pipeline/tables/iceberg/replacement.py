"""The files of an Iceberg table that a run of a keyed table replaces.

Iceberg's files do not change. So the run writes each file again that has a row of its keys, without these rows. The new rows go to the file
with their range of keys, and each file is sorted by key: the ranges of the files stay apart, and later runs read few of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import PrimitiveType

from headrace.pipeline.tables.column_types import canonical, conformed
from headrace.pipeline.tables.iceberg.errors import iceberg_errors
from headrace.pipeline.tables.iceberg.schemas import table_schema

GROUP_BYTES: Final = 64 * 1024 * 1024
"""The size in memory of the files that are sorted and written again together."""


class Replacement:
    """The files of a version of the table `name` that may have one of the keys, and the files with one of them."""

    def __init__(self, table: Table, keys: pa.Table, name: str) -> None:
        self._table = table
        self._keys = keys
        self._name = name
        self._touched: list[FileScanTask] = []

    @property
    def files(self) -> list[DataFile]:
        """The files with rows of the keys. Call `present` before."""
        return [task.file for task in self._touched]

    def present(self, columns: pa.Schema) -> pa.Table:
        """Return the rows of the keys, with the declared columns. Files whose statistics exclude the keys are not read."""
        parts = []
        for task in self._candidates():
            rows = self._read(task, self._table.schema())
            mine = rows.filter(self._has_key(rows))
            if mine.num_rows:
                self._touched.append(task)
                parts.append(mine)
        everything = pa.concat_tables(parts) if parts else table_schema(self._table.schema()).empty_table()
        return conformed(everything, columns, self._name)

    def rewritten(self, rows: pa.Table, schema: Schema) -> Iterator[pa.Table]:
        """Yield the content of the files that take the place of `files`: their other rows and the new ones, sorted by key."""
        names = self._keys.column_names
        order = [(name, "ascending") for name in names]
        first = names[0]
        new = conformed(rows, table_schema(schema), self._name).sort_by(order)
        group: list[pa.Table] = []
        for number, task in enumerate(self._touched, 1):
            others = self._read(task, schema)
            group.append(others.filter(pc.invert(self._has_key(others))))
            if number < len(self._touched) and sum(part.nbytes for part in group) < GROUP_BYTES:
                continue
            unchanged = pa.concat_tables(group)
            end = new.num_rows
            if number < len(self._touched) and unchanged.num_rows:
                end = pc.sum(pc.less_equal(new.column(first), pc.max(unchanged.column(first)))).as_py() or 0
            yield pa.concat_tables([unchanged, new.slice(0, end)]).sort_by(order)
            new, group = new.slice(end), []
        yield new

    def _read(self, task: FileScanTask, schema: Schema) -> pa.Table:
        with iceberg_errors(f"The Iceberg table {self._name!r} was not read"):
            rows = ArrowScan(self._table.metadata, self._table.io, schema, AlwaysTrue()).to_table([task])
        return rows.cast(canonical(rows.schema))

    def _has_key(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return for each row whether it has one of the keys."""
        names = self._keys.column_names
        keys = self._keys.cast(pa.schema([rows.schema.field(name) for name in names]))
        some = pc.is_in(rows.column(names[0]), keys.column(0).combine_chunks())
        if len(names) == 1:
            return some
        number = "number"
        while number in names:
            number += "'"
        numbers = pa.array(np.arange(rows.num_rows))
        candidates = rows.select(names).append_column(number, numbers).filter(some)
        mine = candidates.join(keys, names, join_type="left semi").column(number)
        return pc.is_in(pa.chunked_array([numbers]), mine.combine_chunks())

    def _candidates(self) -> list[FileScanTask]:
        """Return the files that may have a key, in the order of the first column of the key."""
        if not self._keys.num_rows:
            return []
        ranges = [_Range(self._table.schema(), self._keys, name) for name in self._keys.column_names]
        with iceberg_errors(f"The Iceberg table {self._name!r} was not read"):
            tasks = [task for task in self._table.scan().plan_files() if all(each.may_be_in(task.file) for each in ranges)]
        return sorted(tasks, key=lambda task: (ranges[0].lower(task.file) is not None, ranges[0].lower(task.file)))


class _Range:
    """The values of one column of the keys, to compare them with the statistics of files."""

    def __init__(self, schema: Schema, keys: pa.Table, name: str) -> None:
        field = schema.find_field(name)
        self._id = field.field_id
        self._type = field.field_type
        self._values: list[Any] = sorted(set(_comparable(keys.column(name)).to_pylist()))

    def may_be_in(self, file: DataFile) -> bool:
        """Return whether a file may have one of the values."""
        lower, upper = self.lower(file), self._bound(file.upper_bounds)
        if lower is None or upper is None:
            return True
        index = bisect_left(self._values, lower)
        return index < len(self._values) and bool(self._values[index] <= upper)

    def lower(self, file: DataFile) -> Any:
        """Return the lower bound of a file's values, or None if it is unknown."""
        return self._bound(file.lower_bounds)

    def _bound(self, bounds: dict[int, bytes] | None) -> Any:
        value = (bounds or {}).get(self._id)
        return None if value is None or not isinstance(self._type, PrimitiveType) else from_bytes(self._type, value)


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values in the form in which Iceberg has bounds: dates and times are numbers."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
