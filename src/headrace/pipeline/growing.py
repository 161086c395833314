"""Numpy columns that grow at the end."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.pipeline.forest import Rows

Column: TypeAlias = npt.NDArray[Any]

_MIN_CAPACITY: Final = 1_024


class GrowingColumns:
    """Columns of one length. To append rows takes time for these rows, on average. `kinds` has each column's dtype, with its shape."""

    def __init__(self, kinds: dict[str, Any]) -> None:
        self._columns: dict[str, Column] = {name: np.empty(0, dtype=kind) for name, kind in kinds.items()}
        self._count = 0

    def __len__(self) -> int:
        """How many rows there are."""
        return self._count

    def __getitem__(self, name: str) -> Column:
        """Return a column; it can be written to, until rows are added."""
        return self._columns[name][: self._count]

    def append(self, **columns: Any) -> None:
        """Add rows: every column has values of one length."""
        count = self._count + len(next(iter(columns.values())))
        for name in self._columns:
            column = self._columns[name]
            if count > len(column):
                grown = np.empty((max(count, len(column) * 3 // 2, _MIN_CAPACITY), *column.shape[1:]), dtype=column.dtype)
                grown[: self._count] = column[: self._count]
                column = self._columns[name] = grown
            column[self._count : count] = columns[name]
        self._count = count

    def keep(self, rows: Rows | slice) -> None:
        """Keep these rows alone, in this order."""
        for name in self._columns:
            self._columns[name] = self[name][rows].copy()
        self._count = len(next(iter(self._columns.values())))
