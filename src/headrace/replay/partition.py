"""Split rows by destination."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.pipeline.kernel.forest import NO_ROW, Rows


def partition(batch: pa.RecordBatch, numbers: Rows) -> list[tuple[int, pa.RecordBatch]]:
    """Return the rows of each destination number, in order, without rows of NO_ROW."""
    if len(numbers) and (numbers == numbers[0]).all():
        return [] if numbers[0] == NO_ROW else [(int(numbers[0]), batch)]
    order = stable_order(numbers)
    order = order[int((numbers == NO_ROW).sum()) :]
    if not len(order):
        return []
    taken = batch.take(pa.array(order))
    values, starts = np.unique(numbers[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    return [(int(number), taken.slice(start, end - start)) for number, start, end in zip(values, starts.tolist(), ends, strict=True)]


def stable_order(numbers: Rows) -> Rows:
    """Return the row order by number, NO_ROW first; equal numbers keep their order."""
    is_small = not len(numbers) or int(numbers.max()) < np.iinfo(np.int16).max
    # 16-bit numbers use a radix sort, several times as fast as for 64 bits.
    return np.argsort(numbers.astype(np.int16) if is_small else numbers, kind="stable")
