"""Scan a partition of the history: store its rows, and send its keys to the tasks that match them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.kernel.forest import NO_ROW, Flags, Rows
from headrace.pipeline.kernel.key_index import KeyIndex, Keys
from headrace.replay.order.digests import digests
from headrace.replay.schemas import KEY, LEADER, OCCURRED, SHARD_BITS, own
from headrace.replay.shuffle_store import ShuffleStore


class Slim(NamedTuple):
    """The columns of a partition that the ordering needs. `leads` are the rows with a leader."""

    key: Keys
    leader: Keys
    leads: Flags
    occurred: Rows


class Scanned(NamedTuple):
    """Rows of a partition, rows without an id, which are dropped, and rows without a time."""

    rows: int
    unnamed: int
    untimed: int


def scan(batches: Iterable[pa.RecordBatch], part: int, buckets: int, store: ShuffleStore) -> Scanned:
    """Store the rows of one partition, find leaders within it, and store its keys and missing leaders in buckets."""
    slims: list[Slim] = []
    unnamed = untimed = rows = 0
    writer = None
    with ExitStack() as stack:
        for batch in batches:
            named = with_id(batch)
            unnamed += batch.num_rows - named.num_rows
            stored = named.select(own(named.schema))
            writer = writer or stack.enter_context(store.writing(f"rows-{part}", stored.schema))
            writer.write_batch(stored)
            slims.append(slim_of(named, rows, part))
            untimed += named.column(OCCURRED).null_count
            rows += named.num_rows
    _store(joined(slims), part, buckets, store)
    return Scanned(rows, unnamed, untimed)


def with_id(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with an id."""
    key = batch.column(KEY)
    return batch.filter(key.is_valid()) if key.null_count else batch


def slim_of(batch: pa.RecordBatch, before: int, part: int) -> Slim:
    """Return the slim columns. Events without a time use the order in which they are read."""
    key, leader = batch.column(KEY), batch.column(LEADER)
    keys, leaders = digests(key), digests(leader)
    leads = (keys != leaders).any(axis=1)
    if leader.null_count:
        leads &= leader.is_valid().to_numpy(zero_copy_only=False)
    times = batch.column(OCCURRED)
    occurred = pc.fill_null(times, 0).to_numpy()
    if times.null_count:
        read = (np.int64(part) << SHARD_BITS) + before + np.arange(len(occurred))
        occurred = np.where(times.is_valid().to_numpy(zero_copy_only=False), occurred, read)
    return Slim(keys, leaders, leads, occurred)


def joined(slims: list[Slim]) -> Slim:
    """Return the rows of all parts."""
    if not slims:
        return Slim(np.empty((0, 2), np.uint64), np.empty((0, 2), np.uint64), np.empty(0, np.bool_), np.empty(0, np.int64))
    return Slim(*(np.concatenate(columns) for columns in zip(*slims, strict=True)))


def _store(slim: Slim, part: int, buckets: int, store: ShuffleStore) -> None:
    index = KeyIndex(slim.key)
    first = index.first()
    count = len(first)
    above = np.arange(count)
    if not first.all():
        again = np.flatnonzero(~first)
        above[again] = index.find(slim.key[again])
    followers = np.flatnonzero(slim.leads & first)
    leaders = index.find(slim.leader[followers])
    here = leaders != NO_ROW
    above[followers[here]] = leaders[here]
    missing, haves = followers[~here], np.flatnonzero(first)
    store.put(f"above-{part}", above)
    store.put(f"occurred-{part}", slim.occurred)
    store.put(f"copies-{part}", np.flatnonzero(~first))
    for name, rows, keys in (("have", haves, slim.key), ("query", missing, slim.leader)):
        selected = keys[rows]
        store.put_sorted(f"{name}-{part}", bucket_of(selected, buckets), buckets, key=selected, row=rows)


def bucket_of(keys: Keys, buckets: int) -> Rows:
    """Return the bucket in which each key is matched."""
    return (keys[:, 0] % np.uint64(buckets)).astype(np.int64)
