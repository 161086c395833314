"""The waiting trees that a batch affects: trees that its events join or release, and trees whose lookback has passed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.pipeline.kernel.arrivals import Arrivals
from headrace.pipeline.kernel.forest import NO_ROW, Flags, Rows, resolve
from headrace.pipeline.kernel.key_index import KeyIndex
from headrace.pipeline.kernel.waiting_events import WaitingEvents


class ContractedForest(NamedTuple):
    """Arrivals and waiting trees as one forest in which a tree is one node: the arrivals first, then the trees.

    `slots` has the roots of the trees, `root` the root of each node, and `free` the nodes that no longer wait.
    """

    slots: Rows
    root: Rows
    free: Flags


def contract(waiting: WaitingEvents, arrivals: Arrivals, lookback: int, now: int) -> ContractedForest:
    """Return the forest of these arrivals, none of which waits yet, and of the trees that they or the time affect.

    A waiting event that follows an arrival is a root. So arrivals and trees form a forest, or a cycle if a tree follows
    one of its own events.
    """
    count = len(arrivals.rows)
    above, missing = arrivals.above(KeyIndex(arrivals.rows.key))
    followers = np.flatnonzero(missing)
    leaders = waiting.find(arrivals.rows.leader[followers])
    followers, leaders = followers[leaders != NO_ROW], leaders[leaders != NO_ROW]
    missing[followers] = False
    roots_above = waiting.roots(leaders)
    leader_rows, roots_below = waiting.followers(arrivals.rows.key)
    slots = np.unique(np.concatenate([roots_above, roots_below, waiting.due(now - lookback)]))
    trees = count + np.arange(len(slots))
    above = np.concatenate([above, trees])
    above[followers] = count + np.searchsorted(slots, roots_above)
    above[count + np.searchsorted(slots, roots_below)] = leader_rows
    blocked = np.concatenate([missing & ~arrivals.known, above[count:] == trees])
    since = np.concatenate([arrivals.rows.since, waiting["since"][slots]])
    root = resolve(above, np.zeros(len(above), dtype=np.int64)).root
    return ContractedForest(slots, root, (~blocked | (since + lookback <= now))[root])
