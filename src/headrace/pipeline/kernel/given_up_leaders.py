"""Leaders that a scope gave up as lost, so that one that arrives later is marked late."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from headrace.core.ordering import causal_order
from headrace.pipeline.kernel.forest import NO_ROW, Flags, Rows
from headrace.pipeline.kernel.key_index import KeyIndex, Keys
from headrace.pipeline.kernel.segments import Changes, Entries, Segments, pack_rows, unpack_rows
from headrace.pipeline.kernel.state import NO_KEYS

_ROW: Final[np.dtype[np.void]] = np.dtype([("key", "<u8", (2,))])


class GivenUpLeaders:
    """The keys of lost leaders, oldest first, without duplicates. `prefix` begins the keys of their durable state."""

    def __init__(self, prefix: str, keys: Keys = NO_KEYS) -> None:
        self.keys = keys
        self._numbers: Rows = np.arange(len(keys))
        self._next = len(keys)
        self._index: KeyIndex | None = None
        self._segments = Segments(prefix)
        self._segments.append(self._numbers)

    @classmethod
    def restore(cls, prefix: str, entries: Entries) -> GivenUpLeaders:
        """Return the leaders from the `changes` that were stored under `prefix`. Raises ValueError if the state is incomplete."""
        restored = cls(prefix)
        parts: list[Any] = [np.empty(0, dtype=_ROW)]

        def unpack(value: bytes, before: int) -> Rows:
            parts.append(unpack_rows(value, _ROW)[0])
            return np.arange(before, before + len(parts[-1]))

        restored._segments = Segments.restore(prefix, entries, unpack)
        rows = np.concatenate(parts)
        restored._next = len(rows)
        restored._numbers = np.flatnonzero(restored._segments.live())
        restored.keys = rows["key"][restored._numbers]
        return restored

    def __len__(self) -> int:
        """Return the number of leaders."""
        return len(self.keys)

    def remove(self, keys: Keys) -> Flags:
        """Remove these keys; return which of them were present."""
        if not len(self.keys):
            return np.zeros(len(keys), dtype=np.bool_)
        rows = self._indexed().find(keys)
        here: Flags = rows != NO_ROW
        if here.any():
            self._delete(np.unique(rows[here]))
        return here

    def add(self, leaders: Keys) -> None:
        """Add these leaders, in this order, and drop the oldest beyond the limit."""
        fresh = leaders[KeyIndex(leaders).first()]
        if len(self.keys):
            fresh = fresh[self._indexed().find(fresh) == NO_ROW]
        numbers = np.arange(self._next, self._next + len(fresh))
        self._next += len(fresh)
        self._segments.append(numbers)
        self.keys, self._numbers = np.concatenate([self.keys, fresh]), np.concatenate([self._numbers, numbers])
        self._index = None
        if (over := len(self.keys) - causal_order.GIVEN_UP_LIMIT) > 0:
            limit = len(self.keys) - causal_order.GIVEN_UP_LIMIT // 2
            self._delete(np.arange(min(limit, max(over, causal_order.PRUNE_BATCH_SIZE))))

    def changes(self) -> Changes:
        """Return the changes since the last call: values by key, None to delete one."""
        return self._segments.changes(self._packed)

    def _indexed(self) -> KeyIndex:
        if self._index is None:
            self._index = KeyIndex(self.keys)
        return self._index

    def _delete(self, rows: Rows) -> None:
        self._segments.remove(self._numbers[rows])
        self.keys, self._numbers = np.delete(self.keys, rows, axis=0), np.delete(self._numbers, rows)
        self._index = None

    def _packed(self, numbers: Rows) -> bytes:
        records = np.empty(len(numbers), dtype=_ROW)
        records["key"] = self.keys[np.searchsorted(self._numbers, numbers)]
        return pack_rows(records)
