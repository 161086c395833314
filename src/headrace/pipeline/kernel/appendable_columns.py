"""Columns in memory that grow at the end."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pipeline.kernel.forest import Rows
from headrace.pipeline.kernel.state import texts_of

Column: TypeAlias = npt.NDArray[Any]

MIN_CAPACITY: Final = 1_024
"""Minimum capacity of a column, in rows."""


class AppendableColumns:
    """Columns of one length. Appending rows takes amortised time per row. `kinds` has each column's dtype and shape."""

    def __init__(self, kinds: dict[str, Any]) -> None:
        self._columns: dict[str, Column] = {name: np.empty(0, dtype=kind) for name, kind in kinds.items()}
        self._count = 0

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._count

    def __getitem__(self, name: str) -> Column:
        """Return a column, writable until rows are added."""
        return self._columns[name][: self._count]

    def append(self, **columns: Any) -> None:
        """Append rows: one value of each column per row."""
        count = self._count + len(next(iter(columns.values())))
        for name in self._columns:
            column = self._columns[name]
            if count > len(column):
                grown = np.empty((max(count, len(column) * 3 // 2, MIN_CAPACITY), *column.shape[1:]), dtype=column.dtype)
                grown[: self._count] = column[: self._count]
                column = self._columns[name] = grown
            column[self._count : count] = columns[name]
        self._count = count

    def keep(self, rows: Rows | slice) -> None:
        """Keep only these rows, in this order."""
        for name in self._columns:
            self._columns[name] = self[name][rows].copy()
        self._count = len(next(iter(self._columns.values())))


class AppendableTexts:
    """A column of texts."""

    def __init__(self) -> None:
        self._bytes = AppendableColumns({"byte": np.uint8})
        self._ends = AppendableColumns({"end": np.int64})
        self._ends.append(end=[0])

    def append(self, texts: pa.Array) -> None:
        """Append rows."""
        lengths, added = texts_of(texts)
        self._ends.append(end=len(self._bytes) + np.cumsum(lengths, dtype=np.int64))
        self._bytes.append(byte=np.frombuffer(added, dtype=np.uint8))

    def take(self, rows: Rows | slice) -> pa.Array:
        """Return these rows as strings. A slice does not copy their bytes."""
        buffers = [None, pa.py_buffer(self._ends["end"]), pa.py_buffer(self._bytes["byte"])]
        texts = pa.Array.from_buffers(pa.large_string(), len(self._ends) - 1, buffers)
        return (texts[rows] if isinstance(rows, slice) else texts.take(pa.array(rows))).cast(pa.string())

    def keep(self, rows: Rows) -> None:
        """Keep only these rows, in this order."""
        texts = self.take(rows)
        self._bytes.keep(slice(0, 0))
        self._ends.keep(slice(0, 1))
        self.append(texts)
