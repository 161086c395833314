"""What a kernel holds between batches, as columns; durable in the very bytes that the pure core writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.identity import KEY_BYTES
from headrace.core.ordering_blob import HEADER, MAGIC
from headrace.pipeline.forest import Flags, Rows
from headrace.pipeline.key_index import Keys

NO_KEYS: Final[Keys] = np.empty((0, 2), dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Columns:
    """Events as columns: `since` is when each began to wait (µs), `late` whether its own followers had given up on it."""

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
        if not len(self):
            return other
        return Columns(
            np.concatenate([self.seq, other.seq]),
            np.concatenate([self.key, other.key]),
            np.concatenate([self.leader, other.leader]),
            np.concatenate([self.occurred, other.occurred]),
            np.concatenate([self.since, other.since]),
            np.concatenate([self.late, other.late]),
            pa.concat_arrays([self.id, other.id]),
        )


def no_columns() -> Columns:
    """Return no events."""
    nothing = np.empty(0, dtype=np.int64)
    return Columns(nothing, NO_KEYS, NO_KEYS, nothing, nothing, np.empty(0, dtype=np.bool_), pa.array([], pa.string()))


@dataclass(slots=True)
class KernelState:
    """Totals (position, head, lost, late, cycles), what waits in order of arrival, and the leaders given up as lost."""

    totals: tuple[int, int, int, int, int]
    waiting: Columns
    given_up: Keys

    @classmethod
    def empty(cls) -> Self:
        """Return the state of a scope that has seen nothing."""
        return cls((0, 0, 0, 0, 0), no_columns(), NO_KEYS)

    def pack(self) -> bytes:
        """Return what `OrderingBlob.pack` returns for the same state."""
        rows = self.waiting
        texts = rows.id.cast(pa.large_binary())
        offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
        parts: list[npt.NDArray[np.generic]] = [
            rows.seq,
            rows.occurred,
            rows.since,
            np.diff(offsets).astype(np.uint32),
            rows.late,
            rows.key,
            rows.leader,
            self.given_up,
        ]
        ids = (
            texts.buffers()[2].slice(offsets[0], offsets[-1] - offsets[0]).to_pybytes() if len(texts) and offsets[-1] > offsets[0] else b""
        )
        return b"".join([HEADER.pack(MAGIC, *self.totals, len(rows), len(self.given_up)), *(part.tobytes() for part in parts), ids])

    @classmethod
    def unpack(cls, blob: bytes) -> Self:
        """Return what was packed; ValueError for anything else."""
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
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        ids = pa.Array.from_buffers(pa.large_string(), n, [None, pa.py_buffer(offsets), pa.py_buffer(blob[at:])]).cast(pa.string())
        waiting = Columns(columns[0], keys[:n], keys[n : 2 * n], columns[1], columns[2], lates, ids)
        return cls((position, head, lost, late, cycles), waiting, keys[2 * n :])
