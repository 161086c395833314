"""Sort one range of the order and write it as Parquet."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.pipeline.kernel.forest import Rows, in_order
from headrace.pipeline.kernel.kernel import MarkCodes, mark_column
from headrace.replay.inputs.column_paths import value_at
from headrace.replay.inputs.columns import as_text
from headrace.replay.schemas import DEPTH, EFF, GID, MARK, MARK_CODE, OCCURRED, POSITION, ordered_schema
from headrace.replay.shuffle_store import ShuffleStore
from headrace.wire.pipelines.packed_events import MARKS

ROW_GROUP: Final = 100_000
UNMARKED: Final = "none"
"""Key of the count of events without a mark."""


def write_range(number: int, parts: int, position: int, id: str, store: ShuffleStore, out: Path) -> dict[str, int]:
    """Write a range whose first position is `position`. `id` is the column path of ids. Return the number of rows by mark."""
    names = [f"range-{number}-{part}" for part in range(parts)]
    table = gathered(names, store)
    if table is None:
        return {}
    eff, depth, occurred, gid, marks = (table.column(name).to_numpy() for name in (EFF, DEPTH, OCCURRED, GID, MARK_CODE))
    order = in_order(eff, depth, occurred, ids_of(table, id), gid)
    counts = write_part(table, marks, order, position, out / part_name(number))
    store.drop(names)
    return counts


def gathered(names: list[str], store: ShuffleStore) -> pa.Table | None:
    """Return the rows of all these names, in order, or None if there are none."""
    batches = [batch for name in names for batch in store.rows(name)]
    # One chunk, because rows are taken in random order.
    return pa.Table.from_batches(batches).combine_chunks() if batches else None


def ids_of(table: pa.Table, id: str) -> pa.ChunkedArray:
    """Return the ids as text, for sorting."""
    return pa.chunked_array([as_text(chunk) for chunk in value_at(table, id).chunks])


def part_name(number: int) -> str:
    """Return the file name of a range."""
    return f"part-{number:05d}.parquet"


def write_part(table: pa.Table, marks: MarkCodes, order: Rows, position: int, path: Path) -> dict[str, int]:
    """Write the rows in this order, numbered from `position`, to a file that appears when it is complete. Return the
    number of rows by mark.
    """
    schema = ordered_schema(table.schema)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    own = table.select([name for name in schema.names if name not in {POSITION, MARK}])
    with pq.ParquetWriter(str(draft), schema, compression="lz4") as writer:
        for start in range(0, len(order), ROW_GROUP):
            taken = order[start : start + ROW_GROUP]
            positions = pa.array(position + start + np.arange(len(taken)))
            columns = own.take(pa.array(taken)).columns
            writer.write_table(pa.table([positions, mark_column(marks[taken]), *columns], schema=schema))
    draft.replace(path)
    counts = np.bincount(marks[order], minlength=len(MARKS)).tolist()
    return dict(Counter({mark or UNMARKED: count for mark, count in zip(MARKS, counts, strict=True) if count}))
