"""Cutting rows into the pieces that go to different places."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.pipeline.kernel.forest import NOBODY, Rows


def pieces(batch: pa.RecordBatch, numbers: Rows) -> list[tuple[int, pa.RecordBatch]]:
    """Return the rows of each number, in order; those of NOBODY are left out."""
    if len(numbers) and (numbers == numbers[0]).all():
        return [] if numbers[0] == NOBODY else [(int(numbers[0]), batch)]
    order = stable_order(numbers)
    order = order[int((numbers == NOBODY).sum()) :]
    if not len(order):
        return []
    taken = batch.take(pa.array(order))
    found, starts = np.unique(numbers[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    return [(int(number), taken.slice(start, end - start)) for number, start, end in zip(found, starts.tolist(), ends, strict=True)]


def stable_order(numbers: Rows) -> Rows:
    """Return the rows in order of small numbers from NOBODY up; equal ones stay in their order."""
    few = not len(numbers) or int(numbers.max()) < np.iinfo(np.int16).max
    # 16 bits are sorted by radix, several times as fast as 64.
    return np.argsort(numbers.astype(np.int16) if few else numbers, kind="stable")
