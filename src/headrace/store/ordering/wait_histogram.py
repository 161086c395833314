"""Count the waiting times of events in a scope of the SQL store by HOLD_BUCKETS, stored as JSON."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.wire.custody.events import HOLD_BUCKETS

_BOUNDS: Final = [round(bound * 1_000_000) for bound in HOLD_BUCKETS]


def add_waits(before: str, waited: Iterable[int]) -> str:
    """Return the counts after adding these waiting times (µs). Zero is not counted."""
    counts = as_buckets(before) or [0] * (len(_BOUNDS) + 1)
    for wait in waited:
        if wait > 0:
            counts[bisect_left(_BOUNDS, wait)] += 1
    return msgspec.json.encode(counts).decode() if any(counts) else before


def as_buckets(counts: str) -> list[int]:
    """Return the counts by bucket, or an empty list if no event has waited yet."""
    return msgspec.json.decode(counts, type=list[int])
