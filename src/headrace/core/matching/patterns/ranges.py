"""The numeric ranges that contain a number, in a centered interval tree.

Ranges that were added later are compared one by one, until that has cost as much as to build the tree again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from headrace.core.matching.patterns.arrays import Arrays
from headrace.core.matching.patterns.buckets import Bucket, with_entry, without_entry
from headrace.core.matching.patterns.operators import NumericRange

_T = TypeVar("_T")
_NUMBERS: Final = frozenset({int, float})
_Bound = tuple[float, int]
_SAMPLE_RANGES: Final = 32
"""Ranges from which the overlap of all is estimated."""
_BUILD_STEPS: Final = 4
"""Cost to build the tree, in comparisons for each range."""


@dataclass(slots=True, eq=False)
class _Range(Generic[_T]):
    """One range, and its entries; none if it was removed."""

    low: _Bound
    high: _Bound
    bucket: Bucket[_T] = ()


class _Node(Generic[_T]):
    """The ranges that contain `center`, sorted by each bound, and the nodes of the ranges below and above it."""

    __slots__ = ("above", "below", "by_high", "by_low", "center", "highs", "lows")

    def __init__(self, ranges: list[_Range[_T]]) -> None:
        bounds = sorted(bound for one in ranges for bound in (one.low, one.high))
        self.center = center = bounds[len(bounds) // 2]
        here = [one for one in ranges if one.low <= center <= one.high]
        self.by_low = sorted(here, key=lambda one: one.low)
        self.by_high = sorted(here, key=lambda one: one.high)
        self.lows = [one.low for one in self.by_low]
        self.highs = [one.high for one in self.by_high]
        below = [one for one in ranges if one.high < center]
        above = [one for one in ranges if one.low > center]
        self.below: _Node[_T] | None = _Node(below) if below else None
        self.above: _Node[_T] | None = _Node(above) if above else None


class RangeTable(Generic[_T]):
    """Entries by numeric range. `find` costs the logarithm of the number of ranges, and the ranges that it returns."""

    def __init__(self) -> None:
        self._ranges: dict[NumericRange, _Range[_T]] = {}
        self._pending: dict[NumericRange, _Range[_T]] = {}
        self._sample: deque[_Range[_T]] = deque(maxlen=_SAMPLE_RANGES)
        self._steps = 0
        self._root: _Node[_T] | None = None

    def __len__(self) -> int:
        return len(self._ranges)

    def add(self, operator: NumericRange, entry: _T) -> None:
        """Add an entry."""
        one = self._ranges.get(operator)
        if one is None:
            one = self._ranges[operator] = self._pending[operator] = _Range(operator.low, operator.high)
            self._sample.append(one)
        one.bucket = with_entry(one.bucket, entry)

    def remove(self, operator: NumericRange, entry: _T) -> None:
        """Remove an entry that was added."""
        one = self._ranges[operator]
        one.bucket = without_entry(one.bucket, entry)
        if not one.bucket:
            del self._ranges[operator]
            self._pending.pop(operator, None)

    def crowd(self, operator: NumericRange) -> int:
        """Return an estimate of the entries that an event has in common with this one, from the ranges that were added last."""
        at = operator.high if operator.low[0] == -math.inf else operator.low
        overlapping = sum(one.low <= at <= one.high for one in self._sample)
        return len(self._ranges) * overlapping // max(1, len(self._sample))

    def find(self, value: Any, arrays: Arrays, buckets: list[Bucket[_T]]) -> None:
        """Append the entries whose range contains a number."""
        del arrays
        if type(value) not in _NUMBERS:
            return
        self._steps += len(self._pending)
        if self._steps > _BUILD_STEPS * len(self._ranges):
            self._root = _Node(list(self._ranges.values())) if self._ranges else None
            self._pending, self._steps = {}, 0
        at = (value, 0)
        buckets.extend(one.bucket for one in self._pending.values() if one.low <= at <= one.high)
        node = self._root
        while node is not None:
            # Most nodes on the way contain no range with the number, which one comparison shows.
            if at < node.center:
                if node.lows[0] <= at:
                    self._take(node.by_low[: bisect_right(node.lows, at)], buckets)
                node = node.below
            else:
                if node.highs[-1] >= at:
                    self._take(node.by_high[bisect_left(node.highs, at) :], buckets)
                node = node.above

    def _take(self, ranges: list[_Range[_T]], buckets: list[Bucket[_T]]) -> None:
        for one in ranges:
            if one.bucket:
                buckets.append(one.bucket)
            else:
                self._steps += 1
