"""The events that the batch policy of one pipeline holds, in order, as columns."""

from __future__ import annotations

import struct
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from headrace.pipeline.kernel.appendable_columns import AppendableColumns
from headrace.pipeline.kernel.forest import Rows
from headrace.pipeline.kernel.kernel import MarkCodes
from headrace.pipeline.kernel.segments import Changes, Entries, Segments
from headrace.pipeline.runs.slices import Slice

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<Bqq")
"""Version, `first`, `last`."""


class HeldEvents:
    """Held events, oldest first. `prefix` begins the keys of their durable state.

    `first` and `last` are the arrival times of the oldest and newest (µs of scope time), 0 if no event is held. `first`
    changes only when all events from before the batch were taken; it is then the time of the batch. `changes` ends a
    batch.
    """

    def __init__(self, prefix: str) -> None:
        self.first = 0
        self.last = 0
        self._prefix = prefix
        self._columns = AppendableColumns({"seq": np.int64, "position": np.int64, "mark": np.int8})
        self._taken = 0  # rows at the front of the columns that were taken
        self._number = 0  # of the first row of the columns
        self._fresh = 0  # rows that were added in this batch
        self._segments = Segments(prefix)
        self._stored: bytes | None = None

    @classmethod
    def restore(cls, entries: Entries, prefix: str) -> HeldEvents:
        """Return the events from the `changes` that were stored under `prefix`. Other entries are ignored.

        Raises:
            ValueError: The entries are not a complete state of this version.
        """
        restored = cls(prefix)

        def unpack(value: bytes, before: int) -> Rows:
            rows = _unpacked(value)
            restored._columns.append(seq=rows.seqs, position=rows.positions, mark=rows.marks)
            return np.arange(before, before + len(rows))

        restored._segments = Segments.restore(prefix, entries, unpack)
        live = restored._segments.live()
        restored._taken = len(live) - int(live.sum())
        if live[: restored._taken].any():
            raise ValueError(f"Of the events under {prefix} some were taken before older ones.")
        restored._stored = entries.get(f"{prefix}times")
        if restored._stored is None and len(restored):
            raise ValueError(f"There are events under {prefix} without {prefix}times.")
        if restored._stored is not None:
            if len(restored._stored) != _HEADER.size or restored._stored[0] != _VERSION:
                raise ValueError(f"{prefix}times is of another version.")
            _, restored.first, restored.last = _HEADER.unpack(restored._stored)
        return restored

    def __len__(self) -> int:
        """Return the number of held events."""
        return len(self._columns) - self._taken

    @property
    def lowest(self) -> int | None:
        """The lowest held seq, or None."""
        return int(self.seqs.min()) if len(self) else None

    @property
    def seqs(self) -> Rows:
        """The held seqs, in order, read-only."""
        return self._columns["seq"][self._taken :]

    def append(self, seqs: Rows, positions: Rows, marks: MarkCodes, now: int) -> None:
        """Hold these events after all others. `marks` has codes of `packed_events.MARKS`, `now` is the scope time (µs)."""
        if not len(seqs):
            return
        if not len(self):
            self.first = now
        self.last = now
        start = self._number + len(self._columns)
        self._columns.append(seq=seqs, position=positions, mark=marks)
        self._segments.append(np.arange(start, start + len(seqs)))
        self._fresh += len(seqs)

    def take(self, count: int) -> tuple[Rows, Rows, MarkCodes]:
        """Remove up to `count` of the oldest events; return their seqs, positions and marks."""
        start = self._taken
        self._taken += min(count, len(self))
        taken = slice(start, self._taken)
        seqs, positions, marks = (self._columns[name][taken].copy() for name in ("seq", "position", "mark"))
        self._segments.remove(np.arange(self._number + start, self._number + self._taken))
        if not len(self):
            self.first = self.last = 0
        elif len(seqs) and len(self) <= self._fresh:
            self.first = self.last
        if self._taken * 2 > len(self._columns):
            self._columns.keep(slice(self._taken, None))
            self._number, self._taken = self._number + self._taken, 0
        return seqs, positions, marks

    def changes(self) -> Changes:
        """Return the changes since the last call: values by key, or None to delete a key. This ends the batch."""
        out = self._segments.changes(self._packed)
        times = _HEADER.pack(_VERSION, self.first, self.last) if len(self) else None
        if times != self._stored:
            out[f"{self._prefix}times"] = times
            self._stored = times
        self._fresh = 0
        return out

    def _packed(self, rows: Rows) -> bytes:
        at = rows - self._number
        return Slice(self._columns["seq"][at], self._columns["position"][at], self._columns["mark"][at]).pack()


def _unpacked(value: bytes) -> Slice:
    try:
        return Slice.unpack(value)
    except (msgspec.MsgspecError, pa.ArrowException, OSError) as error:
        raise ValueError(f"A segment of held events cannot be read: {error}") from error
