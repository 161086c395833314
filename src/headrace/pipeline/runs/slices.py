"""The events of one run: which, in which order, at which positions and with which marks. Their payloads stay in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.ranges import Ranges, ranges_of
from headrace.pipeline.kernel.forest import Rows
from headrace.pipeline.kernel.kernel import MarkCodes, mark_column
from headrace.pipeline.schemas import ORDERED_SCHEMA

_MAGIC: Final = b"HRS1"
_CODEC: Final = "zstd"
_WIDTHS: Final = (np.int8, np.int16, np.int32, np.int64)


class _Packed(msgspec.Struct, array_like=True):
    """The packed form: each column as a NumPy type and the differences between neighbours."""

    count: int
    seqs: tuple[str, bytes]
    positions: tuple[str, bytes]
    marks: bytes
    triggers: dict[int, list[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Events in the order in which a run takes them.

    `triggers` has the triggers of an event, by row, where they are not those that the log tells of it.
    """

    seqs: Rows
    positions: Rows
    marks: MarkCodes
    triggers: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.seqs)

    @property
    def ranges(self) -> Ranges:
        """The events as closed ranges of their seqs."""
        return ranges_of(np.sort(self.seqs))

    def take(self, rows: Rows) -> Slice:
        """Return these rows, which ascend."""
        triggers: dict[int, Sequence[str]] = {}
        if self.triggers:
            triggers = {at: self.triggers[row] for at, row in enumerate(rows.tolist()) if row in self.triggers}
        return Slice(self.seqs[rows], self.positions[rows], self.marks[rows], triggers)

    def pack(self) -> bytes:
        """Return the slice as bytes: two or three for each event of a usual slice."""
        triggers = {row: list(names) for row, names in self.triggers.items()}
        packed = _Packed(len(self), _differences(self.seqs), _differences(self.positions), self.marks.tobytes(), triggers)
        plain = msgspec.msgpack.encode(packed)
        compressed: bytes = pa.compress(plain, codec=_CODEC, asbytes=True)
        return b"".join([_MAGIC, len(plain).to_bytes(8, "little"), compressed])

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Return the slice that `pack` packed. Raises ValueError for anything else."""
        if data[:4] != _MAGIC:
            raise ValueError("these bytes are not a slice of this version")
        plain = pa.decompress(data[12:], decompressed_size=int.from_bytes(data[4:12], "little"), codec=_CODEC, asbytes=True)
        packed = msgspec.msgpack.decode(plain, type=_Packed)
        seqs, positions = _sums(packed.seqs), _sums(packed.positions)
        return cls(seqs, positions, np.frombuffer(packed.marks, np.int8), packed.triggers)

    def table(self, events: pa.Table) -> pa.Table:
        """Return the slice as ORDERED_SCHEMA. `events` are the same events, in the same order, as LOG_SCHEMA."""
        added = {"position": pa.array(self.positions), "mark": mark_column(self.marks)}
        table = pa.table([added.get(name) or events.column(name) for name in ORDERED_SCHEMA.names], schema=ORDERED_SCHEMA)
        if not self.triggers:
            return table
        at = table.schema.get_field_index("triggers")
        triggers = table.column(at).to_pylist()
        for row, names in self.triggers.items():
            triggers[row] = list(names)
        return table.set_column(at, table.schema.field(at), pa.array(triggers, pa.list_(pa.string())))


def _differences(column: Rows) -> tuple[str, bytes]:
    differences = np.diff(column, prepend=np.int64(0))
    low, high = int(differences.min(initial=0)), int(differences.max(initial=0))
    width = next(each for each in _WIDTHS if np.iinfo(each).min <= low and high <= np.iinfo(each).max)
    narrow: npt.NDArray[Any] = differences.astype(width)
    return narrow.dtype.str, narrow.tobytes()


def _sums(packed: tuple[str, bytes]) -> Rows:
    return np.cumsum(np.frombuffer(packed[1], np.dtype(packed[0])), dtype=np.int64)
