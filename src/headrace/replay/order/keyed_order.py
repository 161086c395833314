"""Order a history with an ordering key: rows with the same key go to the same shard, and each shard is ordered independently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.pipeline.kernel.forest import NO_ROW, in_order, resolve
from headrace.pipeline.kernel.kernel import CYCLE_CODE, LOST_CODE
from headrace.pipeline.kernel.key_index import KeyIndex, Keys, column_of, keys_of
from headrace.pipeline.kernel.state import NO_KEYS
from headrace.replay.order.digests import digests
from headrace.replay.order.output import gathered, ids_of, part_name, write_part
from headrace.replay.order.scan import bucket_of, slim_of, with_id
from headrace.replay.partition import partition
from headrace.replay.schemas import KEY, LEADER, OCCURRED, ORDERING_KEY, own
from headrace.replay.shuffle_store import ShuffleStore

LOT_BYTES: Final = 32 * 1024 * 1024
"""Bytes of rows that are distributed in one step; smaller steps would write many small batches."""


class ShardCounts(NamedTuple):
    """Rows of each shard, rows without an id, which are dropped, and rows without a time."""

    rows: list[int]
    unnamed: int
    untimed: int


class Ordered(NamedTuple):
    """Rows by mark, the number of cycles, and the number of copies."""

    marks: dict[str, int]
    cycles: int
    copies: int


def distribute(batches: Iterable[pa.RecordBatch], part: int, shards: int, store: ShuffleStore) -> ShardCounts:
    """Distribute the rows of one partition to shards, by key."""
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
            for number, piece in partition(_with_keys(named, ordering_key, read, part), shard):
                if number not in writers:
                    writers[number] = stack.enter_context(store.writing(f"shard-{number}-{part}", piece.schema))
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
        if size >= LOT_BYTES:
            yield pa.concat_batches(lot)
            lot, size = [], 0
    if lot:
        yield pa.concat_batches(lot)


def _with_keys(batch: pa.RecordBatch, ordering_key: Keys, before: int, part: int) -> pa.RecordBatch:
    """Return the history's own columns, SLIM with digests instead of ids, and half a digest of the ordering key."""
    slim = slim_of(batch, before, part)
    columns = {KEY: column_of(slim.key), LEADER: column_of(slim.leader, slim.leads), OCCURRED: pa.array(slim.occurred)}
    columns[ORDERING_KEY] = pa.array(ordering_key[:, 1])
    return pa.RecordBatch.from_pydict({**{name: batch.column(name) for name in own(batch.schema)}, **columns})


def order_shard(shard: int, parts: int, position: int, id: str, store: ShuffleStore, out: Path) -> Ordered:
    """Order all rows of one shard and write them. A leader with another key is ignored: its followers are marked lost.

    Stores the shard's keys and the leaders that it lacks, for `find_crossing`.
    """
    names = [f"shard-{shard}-{part}" for part in range(parts)]
    table = gathered(names, store)
    if table is None:
        store.put(f"have-{shard}", NO_KEYS)
        store.put(f"lack-{shard}", NO_KEYS)
        return Ordered({}, 0, 0)
    key, _ = keys_of(table.column(KEY))
    leader, leads = keys_of(table.column(LEADER))
    occurred = table.column(OCCURRED).to_numpy()
    # Rows with another ordering key do not match, in this shard or in another.
    apart = table.column(ORDERING_KEY).to_numpy()[:, None]
    index = KeyIndex(key ^ apart)
    first = index.first()
    above = np.arange(len(key))
    followers = np.flatnonzero(leads & first)
    rows = index.find((leader ^ apart)[followers])
    lost = followers[rows == NO_ROW]
    above[followers[rows != NO_ROW]] = rows[rows != NO_ROW]
    resolved = resolve(above, occurred)
    marks = np.zeros(len(key), dtype=np.int8)
    marks[lost] = LOST_CODE
    marks[resolved.on_cycle] = CYCLE_CODE
    ids = ids_of(table, id)
    order = in_order(resolved.eff, resolved.depth, occurred, ids, np.arange(len(key)))
    if not first.all():
        order = order[first[order]]
    counts = write_part(table, marks, order, position, out / part_name(shard))
    store.put(f"have-{shard}", key)
    store.put(f"lack-{shard}", leader[lost])
    with store.writing(f"lost-{shard}", pa.schema([("id", ids.type)])) as writer:
        writer.write_table(pa.table({"id": ids.take(pa.array(lost))}))
    store.drop(names)
    return Ordered(counts, resolved.cycles, int((~first).sum()))
