"""Statistics of waiting times, for the reports to the API."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.wire.custody.events import HOLD_BUCKETS, WaitingEvent

_MICROS: Final = 1_000_000
_BOUNDS: Final = np.array(HOLD_BUCKETS) * _MICROS


def histogram(before: list[int], waited: npt.NDArray[np.int64]) -> list[int]:
    """Return counts by bucket: `before` plus the waits (µs) above zero."""
    waits = waited[waited > 0]
    counts = np.bincount(np.searchsorted(_BOUNDS, waits), minlength=len(HOLD_BUCKETS) + 1)
    return [int(count) for count in counts + np.array(before or [0] * len(counts))]


def waits(seqs: npt.NDArray[np.int64], since: npt.NDArray[np.int64], now: int) -> list[WaitingEvent]:
    """Return these events with their waiting times in seconds."""
    return [WaitingEvent(seq=seq, seconds=(now - began) / _MICROS) for seq, began in zip(seqs.tolist(), since.tolist(), strict=True)]
