"""Forests as numpy columns: depth, effective time, cycles and order of each event.

A forest is one array: `above[i]` is the row of the leader of row i, or i itself if it has no leader at hand. Rows
resolve their roots by pointer doubling: each round looks twice as far up, so a chain of a million takes twenty rounds
and no recursion. A row that has reached its root is not visited again.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows: TypeAlias = npt.NDArray[np.int64]
"""Row numbers, or other 64-bit integers."""
Flags: TypeAlias = npt.NDArray[np.bool_]

NO_ROW: Final = -1
"""In place of a row number if there is no row."""


class Resolved(NamedTuple):
    """For each row: its root, its depth, its effective time, and whether it is on a cycle.

    `eff` is the latest `occurred` of the row and all rows above it. A row on a cycle is a root: the cycle is cut at
    each of its rows. `cycles` is their number.
    """

    root: Rows
    depth: Rows
    eff: Rows
    on_cycle: Flags
    cycles: int


def resolve(above: Rows, occurred: Rows, depth: Rows | None = None) -> Resolved:
    """Resolve a forest. `depth` is the depth of each row below its leader, 0 for roots (default: 1)."""
    on_cycle = np.zeros(len(above), dtype=np.bool_)
    cycles = 0
    root, deep, eff, lost = _double(above, occurred, depth)
    if len(lost):
        # a row that has climbed more steps than there are rows is on a cycle, and all rows of the cycle appear here
        members = np.unique(root[lost])
        on_cycle[members] = True
        cycles = _count_cycles(above, members)
        above = above.copy()
        above[members] = members
        if depth is not None:
            depth = np.where(on_cycle, 0, depth)
        root, deep, eff, lost = _double(above, occurred, depth)
    return Resolved(root, deep, eff, on_cycle, cycles)


def _double(above: Rows, occurred: Rows, depth: Rows | None) -> tuple[Rows, Rows, Rows, Rows]:
    """Return root, depth and effective time, and the rows that reach no root."""
    rows = np.arange(len(above))
    at = above.copy()
    eff = np.maximum(occurred, occurred[above])  # over a row and all rows up to `at`, both inclusive
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
    """Return the number of cycles among these rows; each is identified by its lowest row."""
    lowest = members.copy()
    at = np.searchsorted(members, above[members])
    for _ in range(len(members).bit_length()):
        lowest = np.minimum(lowest, lowest[at])
        at = at[at]
    return len(np.unique(lowest))


def in_order(eff: Rows, depth: Rows, occurred: Rows, ids: pa.ChunkedArray | pa.Array, last: Rows | None = None) -> Rows:
    """Return the row numbers in order of (eff, depth, occurred, id, `last`), in which each leader precedes its followers.

    A column is only compared where all columns before it are equal.
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
    """Return whether a row equals one of its neighbours."""
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
    # Adjacent tied rows are adjacent in the whole order, or in different groups.
    breaks[tied[1:] - 1] |= sorted_values[1:] != sorted_values[:-1]
    split = np.zeros(len(group), dtype=np.int64)
    np.cumsum(breaks, out=split[1:])
    return order, split


def _ranks(names: pa.Array | pa.ChunkedArray) -> Rows:
    """Return the rank of each text by code point; equal texts have equal ranks."""
    ranks: Rows = pc.rank(names, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks
