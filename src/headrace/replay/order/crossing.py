"""Find followers that were marked lost because their leader has another ordering key."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headrace.pipeline.kernel.forest import NO_ROW
from headrace.pipeline.kernel.key_index import KeyIndex, Keys
from headrace.replay.order.scan import bucket_of
from headrace.replay.shuffle_store import Array, ShuffleStore

EXAMPLES: Final = 3


class Crossing(NamedTuple):
    """The number of followers whose leader has another ordering key, and ids of some."""

    followers: int
    ids: list[str]


def find_crossing(bucket: int, shards: int, buckets: int, store: ShuffleStore) -> Crossing:
    """Look up the leaders that shards lack among the events of all shards, for one bucket."""
    lacked, askers = zip(*(_of_bucket(f"lack-{shard}", bucket, buckets, store) for shard in range(shards)), strict=True)
    missing = np.concatenate(lacked)
    index = KeyIndex(missing)
    exists = np.zeros(len(missing), dtype=np.bool_)
    for shard in range(shards):
        matches = index.find(_of_bucket(f"have-{shard}", bucket, buckets, store)[0])
        exists[matches[matches != NO_ROW]] = True
    exists = exists[index.find(missing)]  # for all followers of one leader, not only for the first
    ids: list[str] = []
    for shard, hit in enumerate(np.split(exists, np.cumsum([len(rows) for rows in askers])[:-1])):
        if len(ids) < EXAMPLES and hit.any():
            lost = [id for batch in store.rows(f"lost-{shard}") for id in batch.column("id").to_pylist()]
            ids += [str(lost[row]) for row in askers[shard][hit][:EXAMPLES].tolist()]
    return Crossing(int(exists.sum()), ids[:EXAMPLES])


def _of_bucket(name: str, bucket: int, buckets: int, store: ShuffleStore) -> tuple[Keys, Array]:
    keys = np.asarray(store.get(name))
    rows = np.flatnonzero(bucket_of(keys, buckets) == bucket)
    return keys[rows], rows
