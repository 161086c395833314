"""Forests as numpy columns: how deep each event is, when the last of those above it occurred, which are on a cycle, and their order.

A forest is one array: `above[i]` is the row of the event that row i follows, and i itself where it follows none that is at hand. The
whole of it is climbed by pointer doubling: each round every row looks twice as far up, so a chain of a million takes twenty rounds and
no recursion, and a row that has reached its root is looked at no more.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows: TypeAlias = npt.NDArray[np.int64]
"""Row numbers, or whatever else is counted in 64 bits."""
Flags: TypeAlias = npt.NDArray[np.bool_]

NOBODY: Final = -1
"""Where a row number is asked for and there is none."""


class Climbed(NamedTuple):
    """For each row: its root, how many are above it, the latest `occurred` over it and those above it, and whether it is on a cycle.

    A row on a cycle is a root: the cycle is cut at every one of its rows. `cycles` is how many there are.
    """

    root: Rows
    depth: Rows
    eff: Rows
    on_cycle: Flags
    cycles: int


def climb(above: Rows, occurred: Rows, depth: Rows | None = None) -> Climbed:
    """Climb a forest. `depth` is how much deeper each row is than the one above it, 0 for roots (not given: 1)."""
    on_cycle = np.zeros(len(above), dtype=np.bool_)
    cycles = 0
    root, deep, eff, lost = _double(above, occurred, depth)
    if len(lost):
        members = np.unique(root[lost])  # whoever has climbed further than there are rows goes round a cycle, and every row of it is met
        on_cycle[members] = True
        cycles = _count_cycles(above, members)
        above = above.copy()
        above[members] = members
        if depth is not None:
            depth = np.where(on_cycle, 0, depth)
        root, deep, eff, lost = _double(above, occurred, depth)
    return Climbed(root, deep, eff, on_cycle, cycles)


def _double(above: Rows, occurred: Rows, depth: Rows | None) -> tuple[Rows, Rows, Rows, Rows]:
    """Return root, depth and eff, and the rows that come to no root."""
    rows = np.arange(len(above))
    at = above.copy()
    eff = np.maximum(occurred, occurred[above])  # over a row and all up to `at`, with both ends
    below = at != rows
    deep = below.astype(np.int64) if depth is None else depth.copy()
    on_the_way = np.flatnonzero(below)
    for _ in range(len(above).bit_length() + 1):
        if not len(on_the_way):
            break
        via = at[on_the_way]
        deep_via, eff_via, further = deep[via], eff[via], at[via]
        deep[on_the_way] += deep_via
        eff[on_the_way] = np.maximum(eff[on_the_way], eff_via)
        at[on_the_way] = further
        on_the_way = on_the_way[above[further] != further]
    return at, deep, eff, on_the_way


def _count_cycles(above: Rows, members: Rows) -> int:
    """Return how many cycles these rows make; each goes by its lowest row."""
    lowest = members.copy()
    at = np.searchsorted(members, above[members])
    for _ in range(len(members).bit_length()):
        lowest = np.minimum(lowest, lowest[at])
        at = at[at]
    return len(np.unique(lowest))


def in_order(eff: Rows, depth: Rows, occurred: Rows, ids: pa.ChunkedArray | pa.Array, last: Rows | None = None) -> Rows:
    """Return the row numbers in order of (eff, depth, occurred, id, `last`), which puts every leader before its followers.

    Each column is only looked at where those before it are equal.
    """
    order = np.argsort(eff, kind="stable")
    group = _groups(eff[order])
    for column in (depth, occurred):
        order, group = _refine(order, group, column)
    tied = _tied(group)
    if tied.any():
        names = ids.take(pa.array(order[tied]))
        ranks = np.zeros(len(order), dtype=np.int64)
        ranks[order[tied]] = _ranks(names)
        order, group = _refine(order, group, ranks)
        if last is not None:
            order, group = _refine(order, group, last)
    return order


def _groups(values: npt.NDArray[Any]) -> Rows:
    """Number the runs of equal values."""
    group = np.zeros(len(values), dtype=np.int64)
    np.cumsum(values[1:] != values[:-1], out=group[1:])
    return group


def _tied(group: Rows) -> Flags:
    """Whether a row has an equal beside it."""
    same = group[1:] == group[:-1]
    tied = np.zeros(len(group), dtype=np.bool_)
    tied[1:] = same
    tied[:-1] |= same
    return tied


def _refine(order: Rows, group: Rows, column: Rows) -> tuple[Rows, Rows]:
    """Order the rows within each group by `column`, and split the groups where it differs."""
    tied = np.flatnonzero(_tied(group))
    if not len(tied):
        return order, group
    rows, groups = order[tied], group[tied]
    values = column[rows]
    by = np.lexsort((values, groups))
    order = order.copy()
    order[tied] = rows[by]
    breaks = group[1:] != group[:-1]
    sorted_values = values[by]
    # Neighbours among the tied are neighbours in the whole, or of different groups.
    breaks[tied[1:] - 1] |= sorted_values[1:] != sorted_values[:-1]
    split = np.zeros(len(group), dtype=np.int64)
    np.cumsum(breaks, out=split[1:])
    return order, split


def _ranks(names: pa.Array | pa.ChunkedArray) -> Rows:
    """Return the place of each text among all of them, equal for equals, by code point."""
    ranks: Rows = pc.rank(names, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks
