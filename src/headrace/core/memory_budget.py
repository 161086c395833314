"""The memory budget of one process, in bytes."""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import Any, Final

MAX_MEMORY_BYTES: Final = 256 * 1024 * 1024
"""Default limit of raw events in one triggerer that are not stored and advanced yet, over all its streams."""
ENTRY_BYTES: Final = 1024
"""Bytes of a raw event in the ledger beside its content, with its obligation and the item to store."""
_MAX_WEIGHED: Final = 10_000
_FLAT_ITEMS: Final = 100
_SHARE: Final = 2
"""A stream may hold this number of times the free bytes: a single stream two thirds of the limit, and each of many a part."""


class MemoryBudget:
    """The bytes that the streams and the outbox of one process share.

    A stream that holds nothing may always read, so that one message larger than the budget passes alone.
    """

    def __init__(self, limit: int = MAX_MEMORY_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.waiting: dict[Callable[[], None], None] = {}
        """Callbacks for freed bytes."""

    def change(self, count: int) -> None:
        """Add `count` bytes to the used ones; a negative `count` frees bytes."""
        self.used += count
        if count < 0 and self.waiting:
            for notify in tuple(self.waiting):
                notify()

    @property
    def is_half_free(self) -> bool:
        """Whether at most half of the limit is used, so that reading ahead is possible."""
        return 2 * self.used <= self.limit

    def admits(self, held: int) -> bool:
        """Return whether a stream that holds `held` bytes may take more."""
        return not held or held < _SHARE * (self.limit - self.used)


def weigh(value: Any) -> int:
    """Return the approximate bytes of a value: with the contents of lists, tuples, sets and dicts; of other objects their own size."""
    if type(value) is dict and len(value) <= _FLAT_ITEMS:
        items = [*value, *value.values()]
        if _CONTAINERS.isdisjoint(map(type, items)):  # the common case of a raw event that is a dict
            items.append(value)
            return _sizes(items)
    total = weighed = 0
    values = [value]
    while values:
        level = values[: _MAX_WEIGHED - weighed]
        rest = len(values) - len(level)
        total += _sizes(level)
        weighed += len(level)
        values = []
        # Most levels have only plain values, which is checked without a loop in Python.
        if not _CONTAINERS.isdisjoint(map(type, level)):
            for one in level:
                kind = type(one)
                if kind is dict:
                    values += one.values()
                if kind in _CONTAINERS:
                    values += one
        if weighed == _MAX_WEIGHED:
            return total * (weighed + rest + len(values)) // weighed
    return total


def _sizes(values: list[Any]) -> int:
    try:
        return sum(map(getsizeof, values))
    except BaseException:  # a class of the user's may raise anything
        return sum(map(_own_size, values))


def _own_size(value: Any) -> int:
    try:
        return getsizeof(value)
    except BaseException:  # as above
        return ENTRY_BYTES


_CONTAINERS: Final = frozenset({dict, list, tuple, set, frozenset})
