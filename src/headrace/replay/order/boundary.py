"""Resolve trees that cross partitions, from the roots of their fragments, in one step on the driver.

Uses some 70 bytes for each event whose leader is in another partition, and none for the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.pipeline.kernel.forest import NO_ROW, Rows, resolve
from headrace.replay.schemas import SHARD_BITS
from headrace.replay.shuffle_store import ShuffleStore

_ROW = (1 << SHARD_BITS) - 1


class _Edges(NamedTuple):
    """For each root of a fragment: the root of its leader's fragment (itself if none), the depth between, and the latest time between."""

    above: Rows
    depth: Rows
    eff: Rows
    target: Rows


def resolve_boundary(parts: int, store: ShuffleStore) -> int:
    """Store depth and effective time of each partition's roots. Return the number of cycles that cross partitions.

    If there are any, store the rows to cut instead. The caller must then contract again, and solve again.
    """
    rows = [np.asarray(store.get(f"boundary-{part}")) for part in range(parts)]
    starts = np.concatenate([[0], np.cumsum([len(some) for some in rows])])
    edges = _edges(rows, starts, store)
    depth = edges.depth.copy()
    ends = edges.above == np.arange(len(depth))
    depth[ends] = 0
    resolved = resolve(edges.above, edges.eff, depth)
    if resolved.cycles:
        for part in range(parts):
            hit = resolved.on_cycle & (edges.target >> SHARD_BITS == part)
            store.put(f"cut-{part}", edges.target[hit] & _ROW)
        return resolved.cycles
    deep = resolved.depth + edges.depth[resolved.root]
    for part in range(parts):
        mine = slice(starts[part], starts[part + 1])
        store.put(f"deeper-{part}", deep[mine])
        store.put(f"later-{part}", resolved.eff[mine])
    return 0


def _edges(rows: list[Rows], starts: Rows, store: ShuffleStore) -> _Edges:
    count = int(starts[-1])
    parts = len(rows)
    target = np.concatenate([np.asarray(store.get(f"leaders-{part}")) for part in range(parts)])
    depth = np.concatenate([np.asarray(store.get(f"steps-{part}")) for part in range(parts)])
    eff = np.concatenate([np.asarray(store.get(f"time-{part}")) for part in range(parts)])
    part_of = target >> SHARD_BITS
    above = np.arange(count)
    for part in range(parts):
        mine = np.flatnonzero(part_of == part)
        at = target[mine] & _ROW
        depth[mine] += store.get(f"depth-{part}")[at]
        eff[mine] = np.maximum(eff[mine], store.get(f"eff-{part}")[at])
        indexes = indexes_of(rows[part], np.asarray(store.get(f"root-{part}")[at]))
        above[mine[indexes != NO_ROW]] = starts[part] + indexes[indexes != NO_ROW]
    return _Edges(above, depth, eff, target)


def indexes_of(ascending: Rows, values: Rows) -> Rows:
    """Return the index of each value in an ascending array, or NO_ROW."""
    if not len(ascending):
        return np.full(len(values), NO_ROW, dtype=np.int64)
    at = np.searchsorted(ascending, values)
    at[at == len(ascending)] = 0
    at[ascending[at] != values] = NO_ROW
    return at
