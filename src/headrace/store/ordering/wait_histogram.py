"""How long events had to wait in a scope of the SQL home: counts by HOLD_BUCKETS, kept as JSON."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.wire.custody.events import HOLD_BUCKETS

_BOUNDS: Final = [round(bound * 1_000_000) for bound in HOLD_BUCKETS]


def counted(before: str, waited: Iterable[int]) -> str:
    """Return the counts with these waits (µs) added, but for those that are none."""
    counts = told(before) or [0] * (len(_BOUNDS) + 1)
    for wait in waited:
        if wait > 0:
            counts[bisect_left(_BOUNDS, wait)] += 1
    return msgspec.json.encode(counts).decode() if any(counts) else before


def told(counts: str) -> list[int]:
    """Return the counts by bucket; none where nothing had to wait yet."""
    return msgspec.json.decode(counts, type=list[int])
