"""The part of what waits that a batch has to do with: trees that its events join or release, and trees that have waited too long."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.pipeline.arrivals import Arrivals
from headrace.pipeline.forest import NOBODY, Flags, Rows, climb
from headrace.pipeline.key_index import KeyIndex
from headrace.pipeline.waiting_events import WaitingEvents


class Touched(NamedTuple):
    """Arrivals and waiting trees as one forest, where a tree is one node: the arrivals first, then the trees.

    `slots` has the roots of the trees, `root` the root of each node, and `free` says which nodes no longer wait.
    """

    slots: Rows
    root: Rows
    free: Flags


def find_touched(waiting: WaitingEvents, arrivals: Arrivals, lookback: int, now: int) -> Touched:
    """Return what these arrivals touch, none of which waits already, and what has waited for the lookback.

    An event that waits for an arrival is a root, so trees and arrivals make a forest, or a cycle where a tree follows one of its own.
    """
    count = len(arrivals.rows)
    above, missing = arrivals.above(KeyIndex(arrivals.rows.key))
    joining = np.flatnonzero(missing)
    leaders = waiting.find(arrivals.rows.leader[joining])
    joining, leaders = joining[leaders != NOBODY], leaders[leaders != NOBODY]
    missing[joining] = False
    joined = waiting.roots(leaders)
    come, freed = waiting.followers(arrivals.rows.key)
    slots = np.unique(np.concatenate([joined, freed, waiting.due(now - lookback)]))
    trees = count + np.arange(len(slots))
    above = np.concatenate([above, trees])
    above[joining] = count + np.searchsorted(slots, joined)
    above[count + np.searchsorted(slots, freed)] = come
    blocked = np.concatenate([missing & ~arrivals.known, above[count:] == trees])
    since = np.concatenate([arrivals.rows.since, waiting["since"][slots]])
    root = climb(above, np.zeros(len(above), dtype=np.int64)).root
    return Touched(slots, root, (~blocked | (since + lookback <= now))[root])
