"""Match all keys of one bucket, from every partition: find copies, and the leaders that partitions look for."""

from __future__ import annotations

import numpy as np

from headrace.pipeline.kernel.forest import NO_ROW, Rows
from headrace.pipeline.kernel.key_index import KeyIndex
from headrace.replay.schemas import SHARD_BITS
from headrace.replay.shuffle_store import Array, ShuffleStore


def match_keys(bucket: int, parts: int, store: ShuffleStore) -> int:
    """Store for each partition the global ids of the leaders it looks for, and of the originals of its copies.

    Return the number of copies. The original is the event of the lowest partition and row.
    """
    key, gid = _gathered("have", bucket, parts, store)
    index = KeyIndex(key)
    first = index.first()
    copies = np.flatnonzero(~first)
    firsts = gid[index.find(key[copies])]
    queried, asker = _gathered("query", bucket, parts, store)
    at = index.find(queried)
    answer = np.full(len(at), NO_ROW, dtype=np.int64)
    answer[at != NO_ROW] = gid[at[at != NO_ROW]]
    for name, who, what in (("copy", gid[copies], firsts), ("leader", asker, answer)):
        store.put_sorted(f"{name}-{bucket}", who >> SHARD_BITS, parts, row=who & _ROW, gid=what)
    return len(copies)


_ROW = (1 << SHARD_BITS) - 1


def _gathered(name: str, bucket: int, parts: int, store: ShuffleStore) -> tuple[Array, Rows]:
    keys, gids = [], []
    for part in range(parts):
        key, row = store.get_bucket(f"{name}-{part}", bucket, "key", "row")
        keys.append(key)
        gids.append((np.int64(part) << SHARD_BITS) + row)
    return np.concatenate(keys), np.concatenate(gids)
