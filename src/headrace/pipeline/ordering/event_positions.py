"""Positions of the events that a scope has ordered. Invariant: an event has one position in the scope, for all pipelines and batches.

Positions of the current batch are here. Those of earlier batches are in the API, in blocks that their plans stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from headrace.pipeline.kernel.forest import Rows
from headrace.pipeline.kernel.kernel import Kernel, KernelResult
from headrace.pipeline.log_reader import LogReader
from headrace.pipeline.runs.slices import Slice
from headrace.wire.pipelines.plans import MAX_POSITION_SEQS, PositionBlock


class EventPositions:
    """The positions and marks of one scope's events. `blocks` ends a batch."""

    def __init__(self, reader: LogReader, scope: str, kernel: Kernel) -> None:
        self._reader = reader
        self._scope = scope
        self._kernel = kernel
        self._added: list[Slice] = []

    def released(self, step: KernelResult) -> Slice:
        """Return the events of the kernel's last step, at the positions that it assigned."""
        last = self._kernel.position
        return self._add(step.seqs, np.arange(last - len(step.seqs) + 1, last + 1), step.marks)

    def of(self, seqs: Iterable[int]) -> Slice:
        """Return these events, each once, by position. An event that this scope has not ordered gets the next position permanently.

        Raises:
            ValueError: A stored block is of another version.
        """
        requested = np.unique(np.fromiter(seqs, dtype=np.int64))
        stored = map(Slice.unpack, self._reader.positions(self._scope, requested.tolist()))
        known = _joined([part.take(np.flatnonzero(np.isin(part.seqs, requested))) for part in (*self._added, *stored)])
        _, firsts = np.unique(known.seqs, return_index=True)  # a block may have come twice
        known = known.take(firsts[np.argsort(known.positions[firsts])])
        new = np.setdiff1d(requested, known.seqs)
        if not len(new):
            return known
        first = self._kernel.position + 1
        self._kernel.position += len(new)
        return _joined([known, self._add(new, np.arange(first, first + len(new)), np.zeros(len(new), dtype=np.int8))])

    def blocks(self) -> list[PositionBlock]:
        """Return the positions assigned since the last call."""
        if not self._added:
            return []
        added, self._added = _joined(self._added), []
        return [PositionBlock(first=int(part.seqs[0]), last=int(part.seqs[-1]), data=part.pack()) for part in _parts(added)]

    def _add(self, seqs: Rows, positions: Rows, marks: np.typing.NDArray[np.int8]) -> Slice:
        events = Slice(seqs, positions, marks)
        if len(events):
            self._added.append(events)
        return events


def _parts(events: Slice) -> Iterator[Slice]:
    """Yield the events by seq, in parts that span up to MAX_POSITION_SEQS seqs."""
    if (events.seqs[1:] < events.seqs[:-1]).any():
        events = events.take(np.argsort(events.seqs))
    start = 0
    while start < len(events):
        end = int(np.searchsorted(events.seqs, events.seqs[start] + MAX_POSITION_SEQS))
        yield events.take(np.arange(start, end))
        start = end


def _joined(parts: list[Slice]) -> Slice:
    if len(parts) == 1:
        return parts[0]
    none = np.empty(0, dtype=np.int64)
    return Slice(
        np.concatenate([none, *(part.seqs for part in parts)]),
        np.concatenate([none, *(part.positions for part in parts)]),
        np.concatenate([none.astype(np.int8), *(part.marks for part in parts)]),
    )
