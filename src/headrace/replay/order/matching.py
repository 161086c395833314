"""All the keys of one bucket, from every partition: which are copies, and where the leaders are that partitions look for."""

from __future__ import annotations

import numpy as np

from headrace.pipeline.kernel.forest import NOBODY, Rows
from headrace.pipeline.kernel.key_index import KeyIndex
from headrace.replay.schemas import SHARD_BITS
from headrace.replay.shuffle_store import Array, ShuffleStore


def match(bucket: int, parts: int, shelf: ShuffleStore) -> int:
    """Leave for each partition the whereabouts of the leaders it asked for, and of the first of what it has a copy of.

    Returns how many copies there are. The first is that of the lowest partition and row.
    """
    key, gid = _gathered("have", bucket, parts, shelf)
    index = KeyIndex(key)
    first = index.first()
    copies = np.flatnonzero(~first)
    firsts = gid[index.find(key[copies])]
    wanted, asker = _gathered("want", bucket, parts, shelf)
    at = index.find(wanted)
    answer = np.full(len(at), NOBODY, dtype=np.int64)
    answer[at != NOBODY] = gid[at[at != NOBODY]]
    for name, who, what in (("copy", gid[copies], firsts), ("found", asker, answer)):
        shelf.put_sorted(f"{name}-{bucket}", who >> SHARD_BITS, parts, row=who & _ROW, gid=what)
    return len(copies)


_ROW = (1 << SHARD_BITS) - 1


def _gathered(name: str, bucket: int, parts: int, shelf: ShuffleStore) -> tuple[Array, Rows]:
    keys, gids = [], []
    for part in range(parts):
        key, row = shelf.get_bucket(f"{name}-{part}", bucket, "key", "row")
        keys.append(key)
        gids.append((np.int64(part) << SHARD_BITS) + row)
    return np.concatenate(keys), np.concatenate(gids)
