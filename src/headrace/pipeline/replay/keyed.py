"""A history with an ordering key: rows that share it are brought together, and each lot is ordered alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.pipeline.forest import NOBODY, climb, in_order
from headrace.pipeline.kernel import CYCLE_CODE, LOST_CODE, mark_column
from headrace.pipeline.key_index import KeyIndex
from headrace.pipeline.replay.finishing import part_name, write_part
from headrace.pipeline.replay.scanning import joined, slim_of
from headrace.pipeline.replay.schemas import ID, KEY, MARK, SHARD_BITS


class Ordered(NamedTuple):
    """How many rows have each mark, how many cycles there are, how many rows are copies, and how many have no id."""

    marks: dict[str, int]
    cycles: int
    copies: int
    unnamed: int


def order_shard(batches: Iterable[pa.RecordBatch], shard: int, out: Path) -> Ordered:
    """Order all the rows of one shard and write them. A leader under another key is not seen: its followers are marked lost."""
    named, slims = [], []
    rows = unnamed = 0
    for batch in batches:
        kept = batch.filter(batch.column(KEY[0]).is_valid())
        unnamed += batch.num_rows - kept.num_rows
        slims.append(slim_of(kept, rows, shard))
        named.append(kept)
        rows += kept.num_rows
    if not rows:
        return Ordered({}, 0, 0, unnamed)
    slim = joined(slims)
    index = KeyIndex(slim.key)
    first = index.first()
    above = np.arange(rows)
    followers = np.flatnonzero(slim.leads & first)
    found = index.find(slim.leader[followers])
    above[followers[found != NOBODY]] = found[found != NOBODY]
    climbed = climb(above, slim.occurred)
    marks = np.zeros(rows, dtype=np.int8)
    marks[followers[found == NOBODY]] = LOST_CODE
    marks[climbed.on_cycle] = CYCLE_CODE
    table = pa.Table.from_batches(named)
    table = table.drop_columns([MARK] if MARK in table.column_names else []).append_column(MARK, mark_column(marks))
    order = in_order(climbed.eff, climbed.depth, slim.occurred, table.column(ID), np.arange(rows))
    if not first.all():
        order = order[first[order]]
    counts = write_part(table, order, (shard << SHARD_BITS) + 1, out / part_name(shard))
    return Ordered(counts, climbed.cycles, int((~first).sum()), unnamed)
