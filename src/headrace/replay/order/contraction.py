"""A partition's own trees, each contracted to its root; and the boundary: the roots whose leader is in another partition."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.pipeline.kernel.forest import NOBODY, Flags, Rows, climb
from headrace.replay.shuffle_store import ShuffleStore

EARLIEST = np.iinfo(np.int64).min
"""When a copy occurred: it stands for the first of its kind and adds nothing."""


class Contracted(NamedTuple):
    """How many rows of a partition wait for a leader elsewhere, how many cycles it has, and how many followers without a leader."""

    boundary: int
    cycles: int
    lost: int


def contract(part: int, buckets: int, shelf: ShuffleStore, cut: bool) -> Contracted:
    """Climb the trees of a partition as far as they are in it. `cut`: some go round a cycle that crosses partitions; cut them there.

    A copy of an event that another partition has first is a root too, and its leader is the event itself, nothing deeper.
    """
    above = np.array(shelf.get(f"above-{part}"))
    occurred = np.array(shelf.get(f"occurred-{part}"))
    rows, targets = _answers("found", part, buckets, shelf)
    copies, firsts = _answers("copy", part, buckets, shelf)
    own = ~np.isin(rows, copies)
    rows, targets = rows[own], targets[own]
    occurred[shelf.get(f"copies-{part}")] = EARLIEST
    above[copies], occurred[copies] = copies, EARLIEST
    lost = rows[targets == NOBODY]
    there = targets != NOBODY
    boundary, leaders = np.concatenate([rows[there], copies]), np.concatenate([targets[there], firsts])
    steps = np.ones(len(boundary), dtype=np.int64)
    steps[len(boundary) - len(copies) :] = 0
    on_cycle = np.zeros(len(above), dtype=np.bool_)
    if cut:
        on_cycle = _path(above, np.asarray(shelf.get(f"cut-{part}")))
        on_cycle &= occurred != EARLIEST
        stays = ~on_cycle[boundary]
        boundary, leaders, steps = boundary[stays], leaders[stays], steps[stays]
        above[on_cycle] = np.flatnonzero(on_cycle)
    # A copy is no step further from the root than what it stands for.
    depth = ((above != np.arange(len(above))) & (occurred != EARLIEST)).astype(np.int64)
    climbed = climb(above, occurred, depth)
    by_row = np.argsort(boundary)
    for name, column in (
        ("root", climbed.root),
        ("depth", climbed.depth),
        ("eff", climbed.eff),
        ("cycle", climbed.on_cycle | on_cycle),
        ("lost", lost),
        ("dropped", _dropped(part, copies, shelf)),
        ("boundary", boundary[by_row]),
        ("leaders", leaders[by_row]),
        ("steps", steps[by_row]),
        ("told", occurred[boundary[by_row]]),
    ):
        shelf.put(f"{name}-{part}", column)
    return Contracted(len(boundary), climbed.cycles, len(lost))


def _answers(name: str, part: int, buckets: int, shelf: ShuffleStore) -> tuple[Rows, Rows]:
    """Return what all buckets answered to this partition: its rows, and where in the whole history."""
    answers = [shelf.get_bucket(f"{name}-{bucket}", part, "row", "gid") for bucket in range(buckets)]
    return np.concatenate([rows for rows, _ in answers]), np.concatenate([gids for _, gids in answers])


def _path(above: Rows, starts: Rows) -> Flags:
    """Return which rows are met on the way from `starts` up to their roots, both included."""
    met = np.zeros(len(above), dtype=np.bool_)
    while len(starts):
        met[starts] = True
        starts = np.unique(above[starts])
        starts = starts[~met[starts]]
    return met


def _dropped(part: int, copies: Rows, shelf: ShuffleStore) -> Rows:
    return np.concatenate([np.asarray(shelf.get(f"copies-{part}")), copies])
