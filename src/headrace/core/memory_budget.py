"""What may be in memory at once, in bytes."""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import Any, Final

MAX_MEMORY_BYTES: Final = 256 * 1024 * 1024
"""The most that one triggerer holds of what was read and is not yet stored and advanced, over all its streams."""
ENTRY_BYTES: Final = 1024
"""What a raw event on the books costs beside its content, with its claim, and the item to store."""
_MOST_WEIGHED: Final = 10_000
_FLAT_ITEMS: Final = 100
_SHARE: Final = 2
"""A stream may hold so many times what is free: one alone two thirds of all, and each of many something, whatever the others hold."""


class MemoryBudget:
    """The bytes that the streams and the outbox of one process share.

    A stream that holds nothing may always read on, so that one message that is larger than the budget passes alone.
    """

    def __init__(self, limit: int = MAX_MEMORY_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.waiting: dict[Callable[[], None], None] = {}
        """What to call when something is given back."""

    def change(self, count: int) -> None:
        """Take so many bytes, or give them back where `count` is negative."""
        self.used += count
        if count < 0 and self.waiting:
            for made_room in tuple(self.waiting):
                made_room()

    @property
    def is_half_free(self) -> bool:
        """Whether there is room to read ahead: at most half of the limit is used."""
        return 2 * self.used <= self.limit

    def admits(self, held: int) -> bool:
        """Return whether one that holds so many bytes may take more."""
        return not held or held < _SHARE * (self.limit - self.used)


def weigh(value: Any) -> int:
    """Return about how many bytes a value holds: all of texts, bytes, lists, tuples, sets and dicts in it; of another object its own."""
    if type(value) is dict and len(value) <= _FLAT_ITEMS:
        items = [*value, *value.values()]
        if _CONTAINERS.isdisjoint(map(type, items)):  # as nearly every raw event that is a dict
            items.append(value)
            return _sizes(items)
    total = weighed = 0
    values = [value]
    while values:
        level = values[: _MOST_WEIGHED - weighed]
        rest = len(values) - len(level)
        total += _sizes(level)
        weighed += len(level)
        values = []
        # Most levels are all plain values: that is seen without a loop in Python.
        if not _CONTAINERS.isdisjoint(map(type, level)):
            for one in level:
                kind = type(one)
                if kind is dict:
                    values += one.values()
                if kind in _CONTAINERS:
                    values += one
        if weighed == _MOST_WEIGHED:
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
