"""Intervals of numbers that contain a given number, found by equality alone, as a database index can.

An interval belongs to one node of a binary tree over all numbers: the lowest node with both its ends below. Every interval that contains
a number belongs to one of the 63 nodes above that number.
"""

from __future__ import annotations

from typing import Final

LEVELS: Final = 62
"""Numbers are below 2**62, so that a node fits into 64 bits."""


def interval_node(first: int, last: int) -> int | None:
    """Return the node of the interval from `first` to `last`, or None if it is invalid."""
    if not 0 <= first <= last < 1 << LEVELS:
        return None
    return _node(first, (first ^ last).bit_length())


def covering_nodes(number: int) -> list[int]:
    """Return the nodes of all intervals that can contain the number."""
    return [_node(number, level) for level in range(LEVELS + 1)] if 0 <= number < 1 << LEVELS else []


def _node(number: int, level: int) -> int:
    """Return the node `level` levels above a number: its path from the root, a one, and a zero for each level below it."""
    return ((number >> level) << (level + 1)) | (1 << level)
