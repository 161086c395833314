"""Numbers as closed ranges."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ranges: TypeAlias = list[tuple[int, int]]


def ranges_of(numbers: npt.NDArray[np.int64]) -> Ranges:
    """Return ascending numbers as closed ranges."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    firsts = numbers[np.concatenate([[0], breaks + 1])]
    lasts = numbers[np.concatenate([breaks, [len(numbers) - 1]])]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def numbers_of(ranges: Ranges) -> npt.NDArray[np.int64]:
    """Return the numbers in ascending closed ranges."""
    parts = [np.arange(first, last + 1, dtype=np.int64) for first, last in ranges]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
