"""One range of the order, sorted and written as Parquet."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.pipeline.forest import Rows, in_order
from headrace.pipeline.replay.schemas import DEPTH, EFF, GID, ID, MARK, OCCURRED, POSITION, ordered_schema
from headrace.pipeline.replay.shelf import Shelf

ROW_GROUP: Final = 100_000
UNMARKED: Final = "none"
"""Under this are counted the events without a mark."""


def finish(number: int, parts: int, position: int, shelf: Shelf, out: Path) -> dict[str, int]:
    """Write a range, whose first position is given. Returns how many rows have each mark."""
    names = [f"range-{number}-{part}" for part in range(parts)]
    batches = [batch for name in names for batch in shelf.rows(name)]
    if not batches:
        return {}
    table = pa.Table.from_batches(batches)
    eff, depth, occurred, gid = (table.column(name).to_numpy() for name in (EFF, DEPTH, OCCURRED, GID))
    order = in_order(eff, depth, occurred, table.column(ID), gid)
    marks = write_part(table, order, position, out / part_name(number))
    shelf.drop(names)
    return marks


def part_name(number: int) -> str:
    """Return the name of the file that has a range."""
    return f"part-{number:05d}.parquet"


def write_part(table: pa.Table, order: Rows, position: int, path: Path) -> dict[str, int]:
    """Write the rows in this order, counted from `position`, as a file that appears when it is whole."""
    schema = ordered_schema(table.schema)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    marks: Counter[str] = Counter()
    table = table.select([name for name in schema.names if name != POSITION])
    with pq.ParquetWriter(str(draft), schema, compression="lz4") as writer:
        for start in range(0, len(order), ROW_GROUP):
            rows = table.take(pa.array(order[start : start + ROW_GROUP]))
            positions = pa.array(position + start + np.arange(rows.num_rows))
            writer.write_table(rows.add_column(0, POSITION, positions).select(schema.names).cast(schema))
            for mark in pc.value_counts(rows.column(MARK)).to_pylist():
                marks[mark["values"] or UNMARKED] += mark["counts"]
    draft.replace(path)
    return dict(marks)
