"""The small files of a table, and which of them a compaction merges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

TARGET_BYTES: Final = 128 * 1024 * 1024
"""A file of this size is not merged again."""
MIN_SMALL_FILES: Final = 128
"""A table with this many smaller files is compacted in the background."""
MAX_REST: Final = 16
"""Smaller files that a compaction may leave."""


class Compaction(NamedTuple):
    """The number of a table's files before and after a compaction."""

    before: int
    after: int


def merge_limit(sizes: Sequence[int]) -> int:
    """Return the size below which files are merged, so that MAX_REST smaller files remain at most.

    A file that is larger than all smaller ones together stays. So a row is written again as often as the logarithm of a
    table's files, and not with each compaction.
    """
    small = sorted(size for size in sizes if size < TARGET_BYTES)
    total = 0
    for number, size in enumerate(small):
        if number > 1 and size > total and len(small) - number <= MAX_REST:
            return size
        total += size
    return TARGET_BYTES
