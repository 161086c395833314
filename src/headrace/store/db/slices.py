"""Choose the rows that one transaction deletes or rewrites.

Other writers wait for its end, so a slice is limited in rows and in bytes. Later transactions process the rest.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, func, literal_column

from headrace.store.dialects.statements import LITTLE_BY_LITTLE, byte_length

MAX_SLICE_BYTES: Final = 8 * 1024 * 1024
"""Maximum bytes of a slice of two or more rows. A single row may have more."""


class Slice:
    """The rows of one transaction: at most `most` rows, and at most MAX_SLICE_BYTES if there are two or more."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._bytes = 0
        self.rows: list[Any] = []
        self.full = False

    def add(self, connection: Connection, query: Select[Any]) -> list[Any]:
        """Add the rows of `query`, in its order, while there is room. Return the added rows.

        Each row has a column `bytes`.
        """
        added: list[Any] = []
        if self.full:
            return added
        # Read the sizes one by one: SQLite reads a text to determine its size.
        with connection.execute(query.limit(self._max_rows - len(self.rows)), execution_options=LITTLE_BY_LITTLE) as rows:
            for row in rows:
                if not self.take(row, row.bytes):
                    break
                added.append(row)
        return added

    def take(self, row: Any, size: int) -> bool:
        """Add one row of `size` bytes. Return False if it does not fit."""
        if self.full or (self.rows and self._bytes + size > MAX_SLICE_BYTES):
            self.full = True
            return False
        self.rows.append(row)
        self._bytes += size
        self.full = len(self.rows) >= self._max_rows
        return True


def take_slice(connection: Connection, query: Select[Any], max_rows: int) -> Slice:
    """Return the first rows of `query`, as many as fit in one transaction."""
    taken = Slice(max_rows)
    taken.add(connection, query)
    return taken


def size_of(*texts: ColumnElement[Any], plus: ColumnElement[int] | int = 0) -> ColumnElement[int]:
    """Return the column `bytes`: the total size of these texts, plus `plus`. A null counts as 0."""
    total: ColumnElement[int] = literal_column(str(plus)) if isinstance(plus, int) else plus
    for text in texts:
        total = total + func.coalesce(byte_length(text), 0)
    return total.label("bytes")
