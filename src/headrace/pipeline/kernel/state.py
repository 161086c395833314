"""The state of a kernel between batches, as columns: complete in the pure core's format, or as the rows of segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.identity import KEY_BYTES
from headrace.core.ordering.snapshot import HEADER, MAGIC
from headrace.pipeline.kernel.forest import Flags, Rows
from headrace.pipeline.kernel.key_index import Keys
from headrace.pipeline.kernel.segments import pack_rows, unpack_rows

NO_KEYS: Final[Keys] = np.empty((0, 2), dtype=np.uint64)

_ROW: Final[np.dtype[np.void]] = np.dtype(
    [
        ("seq", "<i8"),
        ("key", "<u8", (2,)),
        ("leader", "<u8", (2,)),
        ("occurred", "<i8"),
        ("since", "<i8"),
        ("late", "?"),
        ("length", "<u4"),
    ]
)
"""A waiting event in a segment. `length` is the size of its id in bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Events as columns. `since` is when each began to wait (µs), `late` whether its own followers had given up on it."""

    seq: Rows
    key: Keys
    leader: Keys
    occurred: Rows
    since: Rows
    late: Flags
    id: pa.Array

    def __len__(self) -> int:
        return len(self.seq)

    def take(self, rows: Rows) -> Columns:
        """Return these rows."""
        return Columns(
            self.seq[rows],
            self.key[rows],
            self.leader[rows],
            self.occurred[rows],
            self.since[rows],
            self.late[rows],
            self.id.take(pa.array(rows)),
        )

    def followed_by(self, other: Columns) -> Columns:
        """Return the rows of both."""
        return Columns.concat([self, other]) if len(self) else other

    @classmethod
    def concat(cls, parts: Sequence[Columns]) -> Columns:
        """Return the rows of all parts, at least one."""
        return cls(
            np.concatenate([part.seq for part in parts]),
            np.concatenate([part.key for part in parts]),
            np.concatenate([part.leader for part in parts]),
            np.concatenate([part.occurred for part in parts]),
            np.concatenate([part.since for part in parts]),
            np.concatenate([part.late for part in parts]),
            pa.concat_arrays([part.id for part in parts]),
        )

    def pack(self) -> bytes:
        """Return the value of a segment with these rows."""
        records = np.empty(len(self), dtype=_ROW)
        for name in ("seq", "key", "leader", "occurred", "since", "late"):
            records[name] = getattr(self, name)
        records["length"], texts = texts_of(self.id)
        return pack_rows(records, texts)

    @classmethod
    def unpack(cls, value: bytes) -> Columns:
        """Return the rows of a segment. Raises ValueError for any other value."""
        records, texts = unpack_rows(value, _ROW, "length")
        return cls(
            np.ascontiguousarray(records["seq"]),
            np.ascontiguousarray(records["key"]),
            np.ascontiguousarray(records["leader"]),
            np.ascontiguousarray(records["occurred"]),
            np.ascontiguousarray(records["since"]),
            np.ascontiguousarray(records["late"]),
            array_of(records["length"], texts),
        )


def no_columns() -> Columns:
    """Return no events."""
    nothing = np.empty(0, dtype=np.int64)
    return Columns(nothing, NO_KEYS, NO_KEYS, nothing, nothing, np.empty(0, dtype=np.bool_), pa.array([], pa.string()))


@dataclass(slots=True)
class KernelState:
    """Totals (position, head, lost, late, cycles), waiting events in order of arrival, and leaders given up as lost."""

    totals: tuple[int, int, int, int, int]
    waiting: Columns
    given_up: Keys

    @classmethod
    def empty(cls) -> Self:
        """Return the state of a new scope."""
        return cls((0, 0, 0, 0, 0), no_columns(), NO_KEYS)

    def pack(self) -> bytes:
        """Return the same bytes as `OrderingSnapshot.pack` for the same state."""
        rows = self.waiting
        lengths, ids = texts_of(rows.id)
        parts: list[npt.NDArray[np.generic]] = [
            rows.seq,
            rows.occurred,
            rows.since,
            lengths,
            rows.late,
            rows.key,
            rows.leader,
            self.given_up,
        ]
        return b"".join([HEADER.pack(MAGIC, *self.totals, len(rows), len(self.given_up)), *(part.tobytes() for part in parts), ids])

    @classmethod
    def unpack(cls, blob: bytes) -> Self:
        """Return a packed state. Raises ValueError for anything else."""
        if blob[:4] != MAGIC:
            raise ValueError("not an ordering state of this version")
        _, position, head, lost, late, cycles, n, lost_keys = HEADER.unpack_from(blob)
        at = HEADER.size
        columns = np.frombuffer(blob, np.int64, 3 * n, at).reshape(3, n)
        at += 24 * n
        lengths = np.frombuffer(blob, np.uint32, n, at)
        lates = np.frombuffer(blob, np.uint8, n, at + 4 * n) == 1
        at += 5 * n
        keys = np.frombuffer(blob, np.uint64, 4 * n + 2 * lost_keys, at).reshape(-1, 2)
        at += KEY_BYTES * (2 * n + lost_keys)
        waiting = Columns(columns[0], keys[:n], keys[n : 2 * n], columns[1], columns[2], lates, array_of(lengths, blob[at:]))
        return cls((position, head, lost, late, cycles), waiting, keys[2 * n :])


def texts_of(array: pa.Array) -> tuple[npt.NDArray[np.uint32], bytes]:
    """Return the size of each text in bytes of UTF-8, and all texts joined."""
    texts = array.cast(pa.large_binary())
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or offsets[-1] == offsets[0]:
        return np.zeros(len(texts), dtype=np.uint32), b""
    return np.diff(offsets).astype(np.uint32), texts.buffers()[2].slice(offsets[0], offsets[-1] - offsets[0]).to_pybytes()


def array_of(lengths: npt.NDArray[np.uint32], texts: bytes) -> pa.Array:
    """Return the texts from the results of `texts_of`. Raises ValueError if the bytes do not match the sizes."""
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    array = pa.Array.from_buffers(pa.large_string(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(texts)])
    array.validate(full=True)
    return array.cast(pa.string())
