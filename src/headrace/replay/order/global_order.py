"""A history without an ordering key, once its partitions were scanned: through all of them at once, by trees and ranges.

match keys -> contract each partition -> climb the boundary -> spread rows over ranges of the order -> sort and write each range.
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
from headrace.replay.order.contraction import Contracted, contract
from headrace.replay.order.matching import match
from headrace.replay.order.output import finish
from headrace.replay.order.ranges import bounds, spread
from headrace.replay.order.scan import Scanned
from headrace.replay.shuffle_store import ShuffleStore

Each: TypeAlias = Callable[[str, int, Callable[[int], object]], list[Any]]
"""Calls a function with 0 … n - 1 anywhere, as a phase with a name, and gives the answers in order; tuples may come back as lists."""


@dataclass(slots=True)
class Outcome:
    """What became of a history: events ordered, by mark; how many were copies of others, how many had no id,
    and how many do not say when they occurred.

    `crossing`: so many of the lost follow an event that is there, under another ordering key; some of them by id.
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
        """How many follow one that the history does not have."""
        return self.marks[LOST]

    @property
    def in_cycles(self) -> int:
        """How many go round in circles."""
        return self.marks[CYCLE]


def order_scanned(scanned: Sequence[Scanned], ranges: int, id: str, out: Path, shelf: ShuffleStore, each: Each) -> Outcome:
    """Order a history whose partitions were scanned, and write it as so many files. `id` says where the id is in a row."""
    parts = len(scanned)
    each("matching", parts, partial(match, parts=parts, shelf=shelf))
    cycles = _climb(parts, shelf, each)
    counts = each("placing", parts, partial(spread, cuts=bounds(parts, ranges, shelf), shelf=shelf))
    sizes = [sum(column) for column in zip(*counts, strict=True)]
    marks = Counter[str]()
    for told in each("writing", ranges, partial(_finish, parts=parts, firsts=firsts_of(sizes), id=id, shelf=shelf, out=out)):
        marks.update(told)
    events = sum(sizes)
    copies, unnamed = sum(told.rows for told in scanned) - events, sum(told.unnamed for told in scanned)
    return Outcome(events, marks, cycles, copies, unnamed, sum(told.untimed for told in scanned))


def firsts_of(sizes: Sequence[int]) -> list[int]:
    """Return the position of the first event of each file, when they have so many."""
    return [1, *(1 + before for before in accumulate(sizes))]


def _climb(parts: int, shelf: ShuffleStore, each: Each) -> int:
    """Climb the whole history's trees; returns how many cycles it has. Only cycles that cross partitions need a second go."""
    contracted = _contract(parts, shelf, each, cut=False)
    across = boundary.solve(parts, shelf)
    if across:
        contracted = _contract(parts, shelf, each, cut=True)
        boundary.solve(parts, shelf)
    return across + sum(told.cycles for told in contracted)


def _contract(parts: int, shelf: ShuffleStore, each: Each, *, cut: bool) -> list[Contracted]:
    return [Contracted(*told) for told in each("climbing", parts, partial(contract, buckets=parts, shelf=shelf, cut=cut))]


def _finish(number: int, parts: int, firsts: list[int], id: str, shelf: ShuffleStore, out: Path) -> dict[str, int]:
    return finish(number, parts, firsts[number], id, shelf, out)
