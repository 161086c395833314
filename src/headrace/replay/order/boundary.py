"""The boundary: of each tree that crosses partitions only the roots of its pieces, climbed in one go wherever the driver is.

It holds some 70 bytes for each event whose leader is in another partition, and none for the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.pipeline.kernel.forest import NOBODY, Rows, climb
from headrace.replay.schemas import SHARD_BITS
from headrace.replay.shuffle_store import ShuffleStore

_ROW = (1 << SHARD_BITS) - 1


class _Edges(NamedTuple):
    """For each root of a piece: the root of its leader's piece (itself where that is none), how much deeper, the latest on the way."""

    above: Rows
    depth: Rows
    eff: Rows
    target: Rows


def solve(parts: int, shelf: ShuffleStore) -> int:
    """Leave for each partition how deep its roots are and what their eff is. Returns how many cycles cross partitions.

    Where there are any, what has to be cut is left instead; contract again, and then solve again.
    """
    rows = [np.asarray(shelf.get(f"boundary-{part}")) for part in range(parts)]
    starts = np.concatenate([[0], np.cumsum([len(some) for some in rows])])
    edges = _edges(rows, starts, shelf)
    depth = edges.depth.copy()
    ends = edges.above == np.arange(len(depth))
    depth[ends] = 0
    climbed = climb(edges.above, edges.eff, depth)
    if climbed.cycles:
        for part in range(parts):
            hit = climbed.on_cycle & (edges.target >> SHARD_BITS == part)
            shelf.put(f"cut-{part}", edges.target[hit] & _ROW)
        return climbed.cycles
    deep = climbed.depth + edges.depth[climbed.root]
    for part in range(parts):
        mine = slice(starts[part], starts[part + 1])
        shelf.put(f"deeper-{part}", deep[mine])
        shelf.put(f"later-{part}", climbed.eff[mine])
    return 0


def _edges(rows: list[Rows], starts: Rows, shelf: ShuffleStore) -> _Edges:
    count = int(starts[-1])
    parts = len(rows)
    target = np.concatenate([np.asarray(shelf.get(f"leaders-{part}")) for part in range(parts)])
    depth = np.concatenate([np.asarray(shelf.get(f"steps-{part}")) for part in range(parts)])
    eff = np.concatenate([np.asarray(shelf.get(f"told-{part}")) for part in range(parts)])
    part_of = target >> SHARD_BITS
    above = np.arange(count)
    for part in range(parts):
        mine = np.flatnonzero(part_of == part)
        at = target[mine] & _ROW
        depth[mine] += shelf.get(f"depth-{part}")[at]
        eff[mine] = np.maximum(eff[mine], shelf.get(f"eff-{part}")[at])
        found = places(rows[part], np.asarray(shelf.get(f"root-{part}")[at]))
        above[mine[found != NOBODY]] = starts[part] + found[found != NOBODY]
    return _Edges(above, depth, eff, target)


def places(ascending: Rows, wanted: Rows) -> Rows:
    """Return where each wanted number is, or NOBODY."""
    if not len(ascending):
        return np.full(len(wanted), NOBODY, dtype=np.int64)
    at = np.searchsorted(ascending, wanted)
    at[at == len(ascending)] = 0
    at[ascending[at] != wanted] = NOBODY
    return at
