"""The events of one run, in order, with positions and marks. Their payloads stay in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.ranges import Ranges, ranges_of
from headrace.pipeline.kernel.forest import Rows
from headrace.pipeline.kernel.kernel import MarkCodes, mark_column
from headrace.pipeline.schemas import ORDERED_SCHEMA
from headrace.wire.pipelines.packed_events import PackedEvents

_WIDTHS: Final = (np.int8, np.int16, np.int32, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Events in the order in which a run takes them.

    `triggers` has the triggers of an event, by row, where they differ from those in the log.
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
        """Return the slice as bytes: usually two or three for each event."""
        triggers = {row: list(names) for row, names in self.triggers.items()}
        columns = _differences(self.seqs), _differences(self.positions)
        return PackedEvents(len(self), *columns, self.marks.tobytes(), triggers).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Return the packed slice. Raises ValueError for anything else."""
        packed = PackedEvents.decode(data)
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
