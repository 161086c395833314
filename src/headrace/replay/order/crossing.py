"""Followers that were marked lost because their leader has another ordering key."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headrace.pipeline.kernel.forest import NOBODY
from headrace.pipeline.kernel.key_index import KeyIndex, Keys
from headrace.replay.order.scan import bucket_of
from headrace.replay.shuffle_store import Array, ShuffleStore

EXAMPLES: Final = 3


class Crossing(NamedTuple):
    """How many followers have their leader under another key, and the ids of some."""

    followers: int
    ids: list[str]


def find_crossing(bucket: int, shards: int, buckets: int, shelf: ShuffleStore) -> Crossing:
    """Look for those leaders of one bucket that shards lack among what all the shards have."""
    lacked, askers = zip(*(_of_bucket(f"lack-{shard}", bucket, buckets, shelf) for shard in range(shards)), strict=True)
    wanted = np.concatenate(lacked)
    index = KeyIndex(wanted)
    there = np.zeros(len(wanted), dtype=np.bool_)
    for shard in range(shards):
        found = index.find(_of_bucket(f"have-{shard}", bucket, buckets, shelf)[0])
        there[found[found != NOBODY]] = True
    there = there[index.find(wanted)]  # for all that ask for one leader, not only for the first
    ids: list[str] = []
    for shard, hit in enumerate(np.split(there, np.cumsum([len(rows) for rows in askers])[:-1])):
        if len(ids) < EXAMPLES and hit.any():
            lost = [id for batch in shelf.rows(f"lost-{shard}") for id in batch.column("id").to_pylist()]
            ids += [str(lost[row]) for row in askers[shard][hit][:EXAMPLES].tolist()]
    return Crossing(int(there.sum()), ids[:EXAMPLES])


def _of_bucket(name: str, bucket: int, buckets: int, shelf: ShuffleStore) -> tuple[Keys, Array]:
    keys = np.asarray(shelf.get(name))
    rows = np.flatnonzero(bucket_of(keys, buckets) == bucket)
    return keys[rows], rows
