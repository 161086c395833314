"""What a scope holds after a batch, as it is told to the api."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.wire.events import HOLD_BUCKETS, Cursor, ScopeReport, WaitingEvent

_MICROS: Final = 1_000_000
_BOUNDS: Final = np.array(HOLD_BUCKETS) * _MICROS


@dataclass(frozen=True, slots=True)
class Holdings:
    """Totals since the scope began; `report` is of the last batch alone, but for its histogram. What comes after `kept` is still needed."""

    position: int
    waiting: int
    lost: int
    late: int
    cycles: int
    kept: int
    report: ScopeReport

    def after(self, seconds: float) -> Holdings:
        """Return the same of a batch that took so long in all."""
        return replace(self, report=self.report.model_copy(update={"seconds": seconds}))

    def cursor(self, seq: int, batch: int, again: int) -> Cursor:
        """Return what to tell of the batch that ended at `seq`, and at the redelivery `again`."""
        return Cursor(
            cursor=seq,
            batch=batch,
            ordered=self.position,
            waiting=self.waiting,
            lost=self.lost,
            late=self.late,
            cycles=self.cycles,
            kept=min(seq, self.kept),
            again=again,
            report=self.report,
        )


def histogram(before: list[int], waited: npt.NDArray[np.int64]) -> list[int]:
    """Return counts by bucket: those of `before`, and of these waits (µs) that are not zero."""
    waits = waited[waited > 0]
    counts = np.bincount(np.searchsorted(_BOUNDS, waits), minlength=len(HOLD_BUCKETS) + 1)
    return [int(count) for count in counts + np.array(before or [0] * len(counts))]


def waits(seqs: npt.NDArray[np.int64], since: npt.NDArray[np.int64], now: int, most: int) -> list[WaitingEvent]:
    """Return those that wait longest, `most` at most."""
    oldest = np.argsort(since, kind="stable")[:most]
    return [WaitingEvent(seq=int(seqs[row]), seconds=float(now - since[row]) / _MICROS) for row in oldest]
