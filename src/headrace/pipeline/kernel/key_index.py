"""Find rows by their 16-byte key, a column at a time."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.identity import KEY_BYTES
from headrace.pipeline.kernel.forest import NO_ROW, Flags, Rows

Keys: TypeAlias = npt.NDArray[np.uint64]
"""Keys as numbers: n rows of two 64-bit halves."""

_MIX: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))  # odd, so that no bit of either half is lost
_HALF: Final = np.uint64(32)


def keys_of(column: pa.ChunkedArray | pa.Array) -> tuple[Keys, Flags]:
    """Return a column of 16-byte keys as numbers, and where it is not null; nulls are zeros. Raises ValueError for other lengths."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    valid: Flags = array.is_valid().to_numpy(zero_copy_only=False)
    if array.null_count:
        array = array.fill_null(bytes(KEY_BYTES))
    if pa.types.is_binary(array.type):
        wrong = pc.any(pc.not_equal(pc.binary_length(array), KEY_BYTES)).as_py()
        if wrong:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        offsets = np.frombuffer(array.buffers()[1], dtype=np.int32, count=len(array) + 1 + array.offset)
        start = int(offsets[array.offset]) if len(array) else 0
        data = array.buffers()[2]
    else:
        start, data = array.offset * KEY_BYTES, array.buffers()[1]
    if not len(array):
        return np.empty((0, 2), dtype=np.uint64), valid
    return np.frombuffer(data, dtype=np.uint64, count=2 * len(array), offset=start).reshape(-1, 2), valid


def column_of(keys: Keys, valid: Flags | None = None) -> pa.Array:
    """Return keys as a column again, null where they are not valid."""
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEY_BYTES), len(keys), [None, pa.py_buffer(np.ascontiguousarray(keys))])
    column = fixed.cast(pa.binary())
    return column if valid is None else pc.if_else(pa.array(valid), column, pa.scalar(None, pa.binary()))


class KeyIndex:
    """The rows of some keys. Among equal keys, the first row counts.

    Sorted by a 64-bit mix of both halves, which is many times faster than a hash table of byte strings. If two
    different keys have the same mix, all lookups use the slow path. With digests as keys, that does not happen.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        mixes = mixed(keys)
        self._rows = np.argsort(mixes)
        self._mixed = mixes[self._rows]
        again = np.flatnonzero(self._mixed[1:] == self._mixed[:-1]) + 1
        self._clash = bool(len(again)) and bool((keys[self._rows[again]] != keys[self._rows[again - 1]]).any())
        if len(again):
            starts = np.flatnonzero(np.concatenate([[True], self._mixed[1:] != self._mixed[:-1]]))
            self._rows = np.minimum.reduceat(self._rows, starts)
            self._mixed = self._mixed[starts]
        self._repeated = bool(len(again))

    def first(self) -> Flags:
        """Return for each row whether it is the first with its key."""
        if not self._repeated:
            return np.ones(len(self._keys), dtype=np.bool_)
        if self._clash:
            return np.asarray(self.find(self._keys) == np.arange(len(self._keys)))
        first = np.zeros(len(self._keys), dtype=np.bool_)
        first[self._rows] = True
        return first

    def find(self, keys: Keys) -> Rows:
        """Return for each key its first row, or NO_ROW."""
        result = np.full(len(keys), NO_ROW, dtype=np.int64)
        if not len(self._keys) or not len(keys):
            return result
        if self._clash:
            return _find_exactly(self._keys, keys)
        mixes = mixed(keys)
        order = np.argsort(mixes)  # sorted lookups share the processor's caches
        ascending = mixes[order]
        at = np.searchsorted(self._mixed, ascending)
        at[at == len(self._mixed)] = 0
        hit = self._mixed[at] == ascending
        order, rows = order[hit], self._rows[at[hit]]
        same = (self._keys[rows] == keys[order]).all(axis=1)
        result[order[same]] = rows[same]
        return result


def mixed(keys: Keys) -> npt.NDArray[np.uint64]:
    """Return a 64-bit number for each key: equal for equal keys, and almost always different for others."""
    high, low = keys[:, 0], keys[:, 1]
    mixes: Any = (high ^ (high >> _HALF)) * _MIX[0] + (low ^ (low >> _HALF)) * _MIX[1]
    return np.asarray(mixes, dtype=np.uint64)


def _find_exactly(keys: Keys, queries: Keys) -> Rows:
    rows: Rows = (
        pc.index_in(column_of(queries), value_set=column_of(keys)).fill_null(NO_ROW).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return rows
