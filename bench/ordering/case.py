"""The loads of both sides: chains, in order or shuffled, and events without a leader."""

from __future__ import annotations

from random import Random
from typing import Final

SEED: Final = 1
DEPTH: Final = 10
SHUFFLED_EVENTS: Final = 500
"""Number of events that are shuffled among themselves in the shape "chains shuffled"."""
SHAPES: Final = ("no leader", "chains in order", "chains shuffled", "all shuffled")


def shuffled(events: int) -> list[tuple[int, int | None]]:
    """Return shuffled events as (number, number of the leader), in order of arrival."""
    result = [(n, None if n % DEPTH == 0 else n - 1) for n in range(events)]
    Random(SEED).shuffle(result)
    return result


def arrivals(shape: str, events: int) -> list[tuple[int, int | None]]:
    """Return events of one of SHAPES as (number, number of the leader), in order of arrival."""
    if shape == "all shuffled":
        return shuffled(events)
    result = [(n, None if n % DEPTH == 0 or shape == "no leader" else n - 1) for n in range(events)]
    if shape == "chains shuffled":
        random = Random(SEED)
        parts = [result[start : start + SHUFFLED_EVENTS] for start in range(0, events, SHUFFLED_EVENTS)]
        result = [one for part in parts for one in random.sample(part, len(part))]
    return result
