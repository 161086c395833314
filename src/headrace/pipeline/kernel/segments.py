"""A sequence of rows as durable values, of which each change rewrites few.

Rows are stored in numbered segments, in order. `{prefix}w/{number}` has the rows of a segment, `{prefix}d/{number}` a
bitmap of its removed rows. New rows form a new segment, merged with preceding segments of equal or smaller size, up to half
of MAX_SEGMENT_ROWS. So a row is rewritten a logarithmic number of times, and batches of one event leave few keys. A
segment that is more than half removed is rewritten, joined with its neighbours if they fit. An empty segment is
deleted.

The sequence identifies rows by ascending row numbers. Its owner holds the columns, and packs the rows of a segment.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.pipeline.kernel.forest import Flags, Rows

MAX_SEGMENT_ROWS: Final = 2_048
"""Maximum rows of a segment: with 100 bytes each, a batch that merges two and joins two writes less than 1 MB."""

MAX_REWRITTEN_BYTES: Final = 1024 * 1024
"""Approximate bytes of stored segments that are merged in one call, and as many that are joined."""

Entries: TypeAlias = Mapping[str, bytes]
Changes: TypeAlias = dict[str, bytes | None]
"""New values by key; None deletes the key."""
Records: TypeAlias = npt.NDArray[np.void]
Pack: TypeAlias = Callable[[Rows], bytes]
Unpack: TypeAlias = Callable[[bytes, int], Rows]

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<BI")
"""Version, number of rows."""


def pack_rows(records: Records, texts: bytes = b"") -> bytes:
    """Return the value of a segment: its rows, and the bytes of their texts."""
    return _HEADER.pack(_VERSION, len(records)) + records.tobytes() + texts


def unpack_rows(value: bytes, dtype: np.dtype[np.void], length: str | None = None) -> tuple[Records, bytes]:
    """Return the rows and the bytes of their texts. The field `length` has the size of each row's text, or None without texts.

    Raises:
        ValueError: The value is of another version, or its size does not match its rows.
    """
    if len(value) < _HEADER.size:
        raise ValueError(f"A segment has {len(value)} bytes, fewer than its header.")
    version, count = _HEADER.unpack_from(value)
    if version != _VERSION:
        raise ValueError(f"A segment is of version {version}; this headrace reads version {_VERSION}.")
    end = _HEADER.size + count * dtype.itemsize
    if len(value) < end:
        raise ValueError(f"A segment of {count} rows has {len(value)} bytes instead of {end}.")
    records: Records = np.frombuffer(value, dtype, count, _HEADER.size)
    texts = value[end:]
    expected = int(records[length].sum(dtype=np.int64)) if length is not None else 0
    if len(texts) != expected:
        raise ValueError(f"A segment of {count} rows has {len(texts)} bytes of text instead of {expected}.")
    return records, texts


class _Segment:
    """The row numbers of one segment, and which of them were removed."""

    __slots__ = ("changed", "live", "number", "removed", "rows", "size")

    def __init__(self, number: int, rows: Rows, size: int, removed: Flags | None = None) -> None:
        self.number = number
        self.rows = rows
        self.size = size  # of its value, in bytes
        self.removed: Flags = np.zeros(len(rows), dtype=np.bool_) if removed is None else removed
        self.live = len(rows) - int(self.removed.sum())
        self.changed = False

    def remove(self, rows: Rows) -> None:
        at = np.searchsorted(self.rows, rows)
        at[at == len(self.rows)] = 0
        if not (self.rows[at] == rows).all() or self.removed[at].any():
            raise ValueError("Only rows that are in the sequence can be removed.")
        self.removed[at] = True
        self.live -= len(rows)
        self.changed = True

    def left(self) -> Rows:
        return self.rows if self.live == len(self.rows) else self.rows[~self.removed]

    @property
    def sparse(self) -> bool:
        return self.live * 2 < len(self.rows)


class Segments:
    """The segments of a sequence, and the changes since the last `changes`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._segments: list[_Segment] = []
        self._new: list[Rows] = []
        self._stored: set[int] = set()
        self._bitmaps: set[int] = set()
        self._work = 0

    @classmethod
    def restore(cls, prefix: str, entries: Entries, unpack: Unpack) -> Segments:
        """Return the sequence that is stored under `prefix`. Other entries are ignored.

        `unpack` receives the value of a segment and the number of rows before it, and returns its row numbers,
        including removed ones.

        Raises:
            ValueError: The entries are not a complete sequence.
        """
        restored = cls(prefix)
        values, bitmaps = _numbered(entries, f"{prefix}w/"), _numbered(entries, f"{prefix}d/")
        if lone := bitmaps.keys() - values.keys():
            raise ValueError(f"{prefix}d/{min(lone):012d} is the bitmap of a segment that is not there.")
        count, last = 0, -1
        for number in sorted(values):
            rows = unpack(values[number], count)
            if len(rows) and (rows[0] <= last or (rows[1:] <= rows[:-1]).any()):
                raise ValueError(f"{prefix}w/{number:012d} has rows that are out of order.")
            removed = _unpacked(bitmaps[number], len(rows)) if number in bitmaps else None
            restored._segments.append(_Segment(number, rows, len(values[number]), removed))
            count, last = count + len(rows), int(rows[-1]) if len(rows) else last
        restored._stored, restored._bitmaps = set(values), set(bitmaps)
        return restored

    def live(self) -> Flags:
        """Return for each stored row, in order, whether it is still in the sequence."""
        return np.concatenate([np.empty(0, dtype=np.bool_), *(~segment.removed for segment in self._segments)])

    def append(self, rows: Rows) -> None:
        """Append rows. Their numbers ascend, and are above all others."""
        if len(rows):
            self._new.append(rows)
            self._work += len(rows)

    def remove(self, rows: Rows) -> None:
        """Remove rows; their numbers ascend."""
        if not len(rows):
            return
        self._work += len(rows)
        stored = self._segments[-1].rows[-1] if self._segments else -1
        split = int(np.searchsorted(rows, stored, side="right"))
        if split < len(rows):
            self._remove_new(rows[split:])
        if split:
            firsts = np.array([segment.rows[0] for segment in self._segments])
            at = np.searchsorted(firsts, rows[:split], side="right") - 1
            starts = np.flatnonzero(np.concatenate([[True], at[1:] != at[:-1]]))
            for start, end in zip(starts, [*starts[1:], split], strict=True):
                self._segments[at[start]].remove(rows[start:end])

    def changes(self, pack: Pack) -> Changes:
        """Return the changes since the last call. `pack` returns the value of a segment with these rows."""
        out: Changes = {}
        for segment in self._segments:
            if not segment.live:
                self._drop(out, segment.number)
        self._segments = [segment for segment in self._segments if segment.live]
        self._store_new(out, pack)
        self._join_sparse(out, pack)
        for segment in self._segments:
            if segment.changed:
                out[self._bitmap_key(segment.number)] = bytes([_VERSION]) + np.packbits(segment.removed).tobytes()
                self._bitmaps.add(segment.number)
                segment.changed = False
        self._work = 0
        return out

    def _remove_new(self, rows: Rows) -> None:
        new = np.concatenate([np.empty(0, dtype=np.int64), *self._new])
        left = new[~np.isin(new, rows)]
        if len(left) + len(rows) != len(new):
            raise ValueError("Only rows that are in the sequence can be removed.")
        self._new = [left] if len(left) else []

    def _store_new(self, out: Changes, pack: Pack) -> None:
        """Store added rows, merged with the last segments while these have no more rows than the rows after them.

        A segment that is more than half full is not merged.
        """
        if not self._new:
            return
        parts, count = self._new[::-1], sum(map(len, self._new))
        left = MAX_REWRITTEN_BYTES
        while self._segments and self._segments[-1].live <= min(count, MAX_SEGMENT_ROWS // 2) and left > 0:
            last = self._segments.pop()
            left -= last.size
            self._drop(out, last.number)
            parts.append(last.left())
            count += last.live
        rows = np.concatenate(parts[::-1])
        number = self._segments[-1].number + 1 if self._segments else 0
        for start in range(0, count, MAX_SEGMENT_ROWS):
            self._segments.append(self._write_segment(out, number, rows[start : start + MAX_SEGMENT_ROWS].copy(), pack))
            number += 1
        self._new = []

    def _join_sparse(self, out: Changes, pack: Pack) -> None:
        """Rewrite a group of segments of which more than half the rows are removed; after many changes, several groups."""
        if not any(segment.sparse for segment in self._segments):
            return
        done: list[_Segment] = []
        rest = self._segments[::-1]
        left, left_bytes = max(1, self._work // 4), MAX_REWRITTEN_BYTES
        while rest:
            segment = rest.pop()
            if min(left, left_bytes) <= 0 or not segment.sparse:
                done.append(segment)
                continue
            group, count = [segment], segment.live
            if done and done[-1].live + count <= MAX_SEGMENT_ROWS:
                group.insert(0, done.pop())
                count += group[0].live
            while rest and rest[-1].live + count <= MAX_SEGMENT_ROWS:
                group.append(rest.pop())
                count += group[-1].live
            for each in group:
                self._drop(out, each.number)
            done.append(self._write_segment(out, group[0].number, np.concatenate([each.left() for each in group]), pack))
            left -= count
            left_bytes -= done[-1].size
        self._segments = done

    def _write_segment(self, out: Changes, number: int, rows: Rows, pack: Pack) -> _Segment:
        value = out[self._key(number)] = pack(rows)
        self._stored.add(number)
        return _Segment(number, rows, len(value))

    def _drop(self, out: Changes, number: int) -> None:
        out.pop(self._key(number), None)
        for numbers, key in ((self._stored, self._key(number)), (self._bitmaps, self._bitmap_key(number))):
            if number in numbers:
                out[key] = None
                numbers.remove(number)

    def _key(self, number: int) -> str:
        return f"{self._prefix}w/{number:012d}"

    def _bitmap_key(self, number: int) -> str:
        return f"{self._prefix}d/{number:012d}"


def _numbered(entries: Entries, prefix: str) -> dict[int, bytes]:
    """Return the values under `prefix` by their numbers."""
    return dict(_numbers(entries, prefix))


def _numbers(entries: Entries, prefix: str) -> Iterator[tuple[int, bytes]]:
    for key, value in entries.items():
        if key.startswith(prefix):
            digits = key[len(prefix) :]
            if len(digits) != 12 or not (digits.isascii() and digits.isdigit()):
                raise ValueError(f"{key} is not the key of a segment.")
            yield int(digits), value


def _unpacked(bitmap: bytes, count: int) -> Flags:
    if len(bitmap) != 1 + -(-count // 8) or bitmap[0] != _VERSION:
        raise ValueError(f"The bitmap of a segment of {count} rows has {len(bitmap)} bytes, or is of another version.")
    bits: Any = np.unpackbits(np.frombuffer(bitmap, np.uint8, offset=1), count=count)
    return np.asarray(bits == 1)
