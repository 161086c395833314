"""Order a history without an ordering key, after its partitions were scanned: by trees and ranges over all partitions.

match keys -> contract each partition -> resolve the boundary -> assign rows to ranges of the order -> sort and write
each range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

from headrace.core.ordering.causal_order import CYCLE, LOST
from headrace.replay.order import boundary
from headrace.replay.order.contraction import Contracted, contract_trees
from headrace.replay.order.matching import match_keys
from headrace.replay.order.output import write_range
from headrace.replay.order.ranges import assign_ranges, bounds
from headrace.replay.order.scan import Scanned
from headrace.replay.shuffle_store import ShuffleStore

Each: TypeAlias = Callable[[str, int, Callable[[int], object]], list[Any]]
"""Calls a function with 0 … n - 1 anywhere, as a named phase, and returns the results in order. Tuples may be returned as lists."""


@dataclass(slots=True)
class Outcome:
    """The result of an ordering: ordered events by mark, copies, events without an id, and events without a time.

    `crossing`: lost followers whose leader exists under another ordering key, with some of their ids.
    """

    events: int = 0
    marks: Counter[str] = field(default_factory=Counter)
    cycles: int = 0
    copies: int = 0
    unnamed: int = 0
    untimed: int = 0
    crossing: int = 0
    crossing_ids: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """The number of followers whose leader is not in the history."""
        return self.marks[LOST]

    @property
    def in_cycles(self) -> int:
        """The number of events on cycles."""
        return self.marks[CYCLE]


def order_scanned(scanned: Sequence[Scanned], ranges: int, id: str, out: Path, store: ShuffleStore, each: Each) -> Outcome:
    """Order a history whose partitions were scanned, and write it as `ranges` files. `id` is the column path of ids."""
    parts = len(scanned)
    each("matching", parts, partial(match_keys, parts=parts, store=store))
    cycles = _climb(parts, store, each)
    counts = each("placing", parts, partial(assign_ranges, cuts=bounds(parts, ranges, store), store=store))
    sizes = [sum(column) for column in zip(*counts, strict=True)]
    marks = Counter[str]()
    for result in each("writing", ranges, partial(_finish, parts=parts, firsts=firsts_of(sizes), id=id, store=store, out=out)):
        marks.update(result)
    events = sum(sizes)
    copies, unnamed = sum(result.rows for result in scanned) - events, sum(result.unnamed for result in scanned)
    return Outcome(events, marks, cycles, copies, unnamed, sum(result.untimed for result in scanned))


def firsts_of(sizes: Sequence[int]) -> list[int]:
    """Return the position of the first event of each file, for files of these sizes."""
    return [1, *(1 + before for before in accumulate(sizes))]


def _climb(parts: int, store: ShuffleStore, each: Each) -> int:
    """Resolve all trees of the history; return the number of cycles. Only cycles that cross partitions need a second pass."""
    contracted = _contract(parts, store, each, cut=False)
    across = boundary.resolve_boundary(parts, store)
    if across:
        contracted = _contract(parts, store, each, cut=True)
        boundary.resolve_boundary(parts, store)
    return across + sum(result.cycles for result in contracted)


def _contract(parts: int, store: ShuffleStore, each: Each, *, cut: bool) -> list[Contracted]:
    return [Contracted(*result) for result in each("climbing", parts, partial(contract_trees, buckets=parts, store=store, cut=cut))]


def _finish(number: int, parts: int, firsts: list[int], id: str, store: ShuffleStore, out: Path) -> dict[str, int]:
    return write_range(number, parts, firsts[number], id, store, out)
