"""What a batch takes from the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple


class Begin(NamedTuple):
    """Where a scope begins: after the event `seq` and the redelivery `again`. `known` is the last redelivery that there was at that time.

    Of the redeliveries up to `known` the scope takes those of its own events only: what had fired late on older ones, and dead letters
    that were tried again, were for whom came before it.
    """

    seq: int
    again: int = 0
    known: int = 0


class Bounds(NamedTuple):
    """The events with after < seq <= to, the redeliveries with again_after < id <= again_to, and the scope's clock at the end (µs)."""

    after: int
    to: int
    again_after: int
    again_to: int
    clock: int


class BatchBounds:
    """Knows the bounds of each batch, as Spark wrote them into its checkpoint before the batch began.

    They are read there and not from the batch's DataFrame: that would take a job of Spark's for one row, and for a batch that runs again
    the source would have to run on an executor, which need not have what it imports. The first batch begins at `begin`.
    """

    def __init__(self, checkpoint: Path, begin: Begin) -> None:
        self._offsets = checkpoint / "offsets"
        self._begin = begin

    def __call__(self, batch: int) -> Bounds:
        """Return the bounds of a batch that has begun."""
        start = self._offset(batch - 1) if batch else self._begin._asdict()
        end = self._offset(batch)
        return Bounds(start["seq"], end["seq"], start["again"], end["again"], end["clock"])

    def _offset(self, batch: int) -> dict[str, Any]:
        """Return the offset that a batch ends at: the last line of Spark's file, as the query has one source."""
        offset: dict[str, Any] = json.loads((self._offsets / str(batch)).read_text().splitlines()[-1])
        return offset
