"""The first look at a partition of the history: its rows are set aside, its keys are sent to the tasks that match them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.kernel.forest import NOBODY, Flags, Rows
from headrace.pipeline.kernel.key_index import KeyIndex, Keys
from headrace.replay.order.digests import digests
from headrace.replay.schemas import KEY, LEADER, OCCURRED, SHARD_BITS, own
from headrace.replay.shuffle_store import ShuffleStore


class Slim(NamedTuple):
    """What the ordering needs to know of the rows of a partition; `leads` says which follow another event."""

    key: Keys
    leader: Keys
    leads: Flags
    occurred: Rows


class Scanned(NamedTuple):
    """How many rows a partition has, how many were left out because they have no id, and how many do not say when they occurred."""

    rows: int
    unnamed: int
    untimed: int


def scan(batches: Iterable[pa.RecordBatch], part: int, buckets: int, shelf: ShuffleStore) -> Scanned:
    """Set the rows of one partition aside, find the leaders that are in it, and leave its keys and open questions in buckets."""
    slims: list[Slim] = []
    unnamed = untimed = rows = 0
    writer = None
    with ExitStack() as stack:
        for batch in batches:
            named = with_id(batch)
            unnamed += batch.num_rows - named.num_rows
            kept = named.select(own(named.schema))
            writer = writer or stack.enter_context(shelf.writing(f"rows-{part}", kept.schema))
            writer.write_batch(kept)
            slims.append(slim_of(named, rows, part))
            untimed += named.column(OCCURRED).null_count
            rows += named.num_rows
    _leave(joined(slims), part, buckets, shelf)
    return Scanned(rows, unnamed, untimed)


def with_id(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that have an id."""
    key = batch.column(KEY)
    return batch.filter(key.is_valid()) if key.null_count else batch


def slim_of(batch: pa.RecordBatch, before: int, part: int) -> Slim:
    """Return the slim columns. Where events do not say when they occurred, they did in the order in which they are read."""
    key, leader = batch.column(KEY), batch.column(LEADER)
    keys, leaders = digests(key), digests(leader)
    leads = (keys != leaders).any(axis=1)
    if leader.null_count:
        leads &= leader.is_valid().to_numpy(zero_copy_only=False)
    told = batch.column(OCCURRED)
    occurred = pc.fill_null(told, 0).to_numpy()
    if told.null_count:
        read = (np.int64(part) << SHARD_BITS) + before + np.arange(len(occurred))
        occurred = np.where(told.is_valid().to_numpy(zero_copy_only=False), occurred, read)
    return Slim(keys, leaders, leads, occurred)


def joined(slims: list[Slim]) -> Slim:
    """Return the rows of all."""
    if not slims:
        return Slim(np.empty((0, 2), np.uint64), np.empty((0, 2), np.uint64), np.empty(0, np.bool_), np.empty(0, np.int64))
    return Slim(*(np.concatenate(columns) for columns in zip(*slims, strict=True)))


def _leave(slim: Slim, part: int, buckets: int, shelf: ShuffleStore) -> None:
    index = KeyIndex(slim.key)
    first = index.first()
    count = len(first)
    above = np.arange(count)
    if not first.all():
        again = np.flatnonzero(~first)
        above[again] = index.find(slim.key[again])
    followers = np.flatnonzero(slim.leads & first)
    found = index.find(slim.leader[followers])
    here = found != NOBODY
    above[followers[here]] = found[here]
    wants, haves = followers[~here], np.flatnonzero(first)
    shelf.put(f"above-{part}", above)
    shelf.put(f"occurred-{part}", slim.occurred)
    shelf.put(f"copies-{part}", np.flatnonzero(~first))
    for name, rows, keys in (("have", haves, slim.key), ("want", wants, slim.leader)):
        asked = keys[rows]
        shelf.put_sorted(f"{name}-{part}", bucket_of(asked, buckets), buckets, key=asked, row=rows)


def bucket_of(keys: Keys, buckets: int) -> Rows:
    """Return the bucket that each key is matched in."""
    return (keys[:, 0] % np.uint64(buckets)).astype(np.int64)
