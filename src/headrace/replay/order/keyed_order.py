"""A history with an ordering key: rows that share it are brought together, and each lot is ordered alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.pipeline.kernel.forest import NOBODY, climb, in_order
from headrace.pipeline.kernel.kernel import CYCLE_CODE, LOST_CODE
from headrace.pipeline.kernel.key_index import KeyIndex, Keys, column_of, keys_of
from headrace.pipeline.kernel.state import NO_KEYS
from headrace.replay.order.digests import digests
from headrace.replay.order.output import gathered, ids_of, part_name, write_part
from headrace.replay.order.scan import bucket_of, slim_of, with_id
from headrace.replay.pieces import pieces
from headrace.replay.schemas import KEY, LEADER, OCCURRED, ORDERING_KEY, own
from headrace.replay.shuffle_store import ShuffleStore

LOT: Final = 32 * 1024 * 1024
"""Bytes of rows that are dealt out at a time: less would make crumbs of them."""


class ShardCounts(NamedTuple):
    """How many rows went to each shard, how many were left out because they have no id, and how many do not say when they occurred."""

    rows: list[int]
    unnamed: int
    untimed: int


class Ordered(NamedTuple):
    """How many rows have each mark, how many cycles there are, and how many rows are copies."""

    marks: dict[str, int]
    cycles: int
    copies: int


def deal(batches: Iterable[pa.RecordBatch], part: int, shards: int, shelf: ShuffleStore) -> ShardCounts:
    """Set the rows of one partition aside by shard, which is by key."""
    sizes = np.zeros(shards, dtype=np.int64)
    read = unnamed = untimed = 0
    with ExitStack() as stack:
        writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        for lot in _lots(batches):
            named = with_id(lot)
            unnamed += lot.num_rows - named.num_rows
            untimed += named.column(OCCURRED).null_count
            ordering_key = digests(named.column(ORDERING_KEY))
            shard = bucket_of(ordering_key, shards)
            for number, piece in pieces(_with_keys(named, ordering_key, read, part), shard):
                if number not in writers:
                    writers[number] = stack.enter_context(shelf.writing(f"shard-{number}-{part}", piece.schema))
                writers[number].write_batch(piece)
            sizes += np.bincount(shard, minlength=shards)
            read += named.num_rows
    return ShardCounts(sizes.tolist(), unnamed, untimed)


def _lots(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    lot: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        lot.append(batch)
        size += batch.nbytes
        if size >= LOT:
            yield pa.concat_batches(lot)
            lot, size = [], 0
    if lot:
        yield pa.concat_batches(lot)


def _with_keys(batch: pa.RecordBatch, ordering_key: Keys, before: int, part: int) -> pa.RecordBatch:
    """Return the history's own columns, SLIM with digests for names, and half a digest of the ordering key."""
    slim = slim_of(batch, before, part)
    given = {KEY: column_of(slim.key), LEADER: column_of(slim.leader, slim.leads), OCCURRED: pa.array(slim.occurred)}
    given[ORDERING_KEY] = pa.array(ordering_key[:, 1])
    return pa.RecordBatch.from_pydict({**{name: batch.column(name) for name in own(batch.schema)}, **given})


def order_shard(shard: int, parts: int, position: int, id: str, shelf: ShuffleStore, out: Path) -> Ordered:
    """Order all the rows of one shard and write them. A leader under another key is not seen: its followers are marked lost.

    What it has, and which leaders it lacks, is left for the search for leaders under other keys.
    """
    names = [f"shard-{shard}-{part}" for part in range(parts)]
    table = gathered(names, shelf)
    if table is None:
        shelf.put(f"have-{shard}", NO_KEYS)
        shelf.put(f"lack-{shard}", NO_KEYS)
        return Ordered({}, 0, 0)
    key, _ = keys_of(table.column(KEY))
    leader, leads = keys_of(table.column(LEADER))
    occurred = table.column(OCCURRED).to_numpy()
    # What has another ordering key is not seen, whether it is in this shard or in another.
    apart = table.column(ORDERING_KEY).to_numpy()[:, None]
    index = KeyIndex(key ^ apart)
    first = index.first()
    above = np.arange(len(key))
    followers = np.flatnonzero(leads & first)
    found = index.find((leader ^ apart)[followers])
    lost = followers[found == NOBODY]
    above[followers[found != NOBODY]] = found[found != NOBODY]
    climbed = climb(above, occurred)
    marks = np.zeros(len(key), dtype=np.int8)
    marks[lost] = LOST_CODE
    marks[climbed.on_cycle] = CYCLE_CODE
    ids = ids_of(table, id)
    order = in_order(climbed.eff, climbed.depth, occurred, ids, np.arange(len(key)))
    if not first.all():
        order = order[first[order]]
    counts = write_part(table, marks, order, position, out / part_name(shard))
    shelf.put(f"have-{shard}", key)
    shelf.put(f"lack-{shard}", leader[lost])
    with shelf.writing(f"lost-{shard}", pa.schema([("id", ids.type)])) as writer:
        writer.write_table(pa.table({"id": ids.take(pa.array(lost))}))
    shelf.drop(names)
    return Ordered(counts, climbed.cycles, int((~first).sum()))
