"""The loads that both sides get: chains, in order or shuffled, and events without a leader."""

from __future__ import annotations

from random import Random
from typing import Final

SEED: Final = 1
DEPTH: Final = 10
NEAR: Final = 500
"""Chains that are not all shuffled together are shuffled among so many events."""
SHAPES: Final = ("no leader", "chains in order", "chains shuffled", "all shuffled")


def shuffled(events: int) -> list[tuple[int, int | None]]:
    """Return so many events as (number, whom it follows), in order of arrival."""
    found = [(n, None if n % DEPTH == 0 else n - 1) for n in range(events)]
    Random(SEED).shuffle(found)
    return found


def arrivals(shape: str, events: int) -> list[tuple[int, int | None]]:
    """Return so many events of one of SHAPES as (number, whom it follows), in order of arrival."""
    if shape == "all shuffled":
        return shuffled(events)
    found = [(n, None if n % DEPTH == 0 or shape == "no leader" else n - 1) for n in range(events)]
    if shape == "chains shuffled":
        chance = Random(SEED)
        parts = [found[start : start + NEAR] for start in range(0, events, NEAR)]
        found = [one for part in parts for one in chance.sample(part, len(part))]
    return found
