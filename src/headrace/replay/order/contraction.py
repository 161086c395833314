"""Contract each tree of a partition to its root, and collect the boundary: the roots whose leader is in another partition."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.pipeline.kernel.forest import NO_ROW, Flags, Rows, resolve
from headrace.replay.shuffle_store import ShuffleStore

COPY_TIME = np.iinfo(np.int64).min
"""Time of a copy: it stands for the first event with its id and adds nothing."""


class Contracted(NamedTuple):
    """Rows of a partition with a leader elsewhere, its number of cycles, and its followers without a leader."""

    boundary: int
    cycles: int
    lost: int


def contract_trees(part: int, buckets: int, store: ShuffleStore, cut: bool) -> Contracted:
    """Resolve the trees of a partition as far as they are in it. `cut`: cut the cycles that cross partitions.

    A copy of an event in another partition is also a root, whose leader is the event itself, at the same depth.
    """
    above = np.array(store.get(f"above-{part}"))
    occurred = np.array(store.get(f"occurred-{part}"))
    rows, targets = _answers("leader", part, buckets, store)
    copies, firsts = _answers("copy", part, buckets, store)
    own = ~np.isin(rows, copies)
    rows, targets = rows[own], targets[own]
    occurred[store.get(f"copies-{part}")] = COPY_TIME
    above[copies], occurred[copies] = copies, COPY_TIME
    lost = rows[targets == NO_ROW]
    exists = targets != NO_ROW
    boundary, leaders = np.concatenate([rows[exists], copies]), np.concatenate([targets[exists], firsts])
    steps = np.ones(len(boundary), dtype=np.int64)
    steps[len(boundary) - len(copies) :] = 0
    on_cycle = np.zeros(len(above), dtype=np.bool_)
    if cut:
        on_cycle = _path(above, np.asarray(store.get(f"cut-{part}")))
        on_cycle &= occurred != COPY_TIME
        stays = ~on_cycle[boundary]
        boundary, leaders, steps = boundary[stays], leaders[stays], steps[stays]
        above[on_cycle] = np.flatnonzero(on_cycle)
    # A copy has the same distance from the root as the event it stands for.
    depth = ((above != np.arange(len(above))) & (occurred != COPY_TIME)).astype(np.int64)
    resolved = resolve(above, occurred, depth)
    by_row = np.argsort(boundary)
    for name, column in (
        ("root", resolved.root),
        ("depth", resolved.depth),
        ("eff", resolved.eff),
        ("cycle", resolved.on_cycle | on_cycle),
        ("lost", lost),
        ("dropped", _dropped(part, copies, store)),
        ("boundary", boundary[by_row]),
        ("leaders", leaders[by_row]),
        ("steps", steps[by_row]),
        ("time", occurred[boundary[by_row]]),
    ):
        store.put(f"{name}-{part}", column)
    return Contracted(len(boundary), resolved.cycles, len(lost))


def _answers(name: str, part: int, buckets: int, store: ShuffleStore) -> tuple[Rows, Rows]:
    """Return the answers of all buckets to this partition: its rows, and the global ids."""
    answers = [store.get_bucket(f"{name}-{bucket}", part, "row", "gid") for bucket in range(buckets)]
    return np.concatenate([rows for rows, _ in answers]), np.concatenate([gids for _, gids in answers])


def _path(above: Rows, starts: Rows) -> Flags:
    """Return the rows on the paths from `starts` to their roots, both inclusive."""
    met = np.zeros(len(above), dtype=np.bool_)
    while len(starts):
        met[starts] = True
        starts = np.unique(above[starts])
        starts = starts[~met[starts]]
    return met


def _dropped(part: int, copies: Rows, store: ShuffleStore) -> Rows:
    return np.concatenate([np.asarray(store.get(f"copies-{part}")), copies])
