"""Cache of recently read events, so that events that wait briefly are not read twice."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.pipeline.kernel.forest import Flags, Rows

MAX_RECENT_BYTES: Final = 64 * 1024 * 1024


class RecentEvents:
    """The events of the last batches: up to MAX_RECENT_BYTES beside those of the last one. Each table has consecutive seqs."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._first = np.empty(0, dtype=np.int64)
        self._end = np.empty(0, dtype=np.int64)
        self._bytes = 0

    def add(self, events: pa.Table) -> None:
        """Add these events, and drop the oldest ones beyond the limit."""
        if not events.num_rows:
            return
        self._tables.append(events)
        self._bytes += events.nbytes
        while len(self._tables) > 1 and self._bytes > MAX_RECENT_BYTES:
            self._bytes -= self._tables.pop(0).nbytes
        self._first = np.array([table.column("seq")[0].as_py() for table in self._tables], dtype=np.int64)
        self._end = self._first + np.array([table.num_rows for table in self._tables], dtype=np.int64)

    def has(self, seqs: Rows) -> Flags:
        """Return for each seq whether the event is cached."""
        if not self._tables:
            return np.zeros(len(seqs), dtype=np.bool_)
        at = np.searchsorted(self._first, seqs, side="right") - 1
        return (at >= 0) & (seqs < self._end[at])

    def take(self, seqs: Rows) -> pa.Table:
        """Return these events, all of which are cached, in this order."""
        at = np.searchsorted(self._first, seqs, side="right") - 1
        used = np.unique(at)
        starts = np.cumsum([0, *(self._tables[number].num_rows for number in used.tolist()[:-1])])
        index = np.searchsorted(used, at)
        rows = starts[index] + (seqs - self._first[at])
        table = self._tables[used[0]] if len(used) == 1 else pa.concat_tables([self._tables[number] for number in used.tolist()])
        if len(rows) == table.num_rows and (rows[1:] - rows[:-1] == 1).all():
            return table
        return table.take(pa.array(rows))
