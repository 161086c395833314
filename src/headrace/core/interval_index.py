"""Which of many stretches of numbers hold a given one, found by equality alone, as an index of a database can.

A stretch belongs to one node of a binary tree over all numbers: the lowest one that has both its ends below it. What holds a number
belongs to a node above that number, and there are only 63 of them.
"""

from __future__ import annotations

from typing import Final

LEVELS: Final = 62
"""Numbers are below 2**62, so that a node is a number that databases have."""


def interval_node(first: int, last: int) -> int | None:
    """Return the node of the stretch from `first` to `last`; None where there is no such stretch."""
    if not 0 <= first <= last < 1 << LEVELS:
        return None
    return _node(first, (first ^ last).bit_length())


def covering_nodes(number: int) -> list[int]:
    """Return the nodes of all stretches that may hold the number."""
    return [_node(number, level) for level in range(LEVELS + 1)] if 0 <= number < 1 << LEVELS else []


def _node(number: int, level: int) -> int:
    """Return the node above a number, so many levels up: its path from the root, a one, and a zero for each level below it."""
    return ((number >> level) << (level + 1)) | (1 << level)
