"""The load that both sides get: chains, all shuffled together."""

from __future__ import annotations

from random import Random
from typing import Final

SEED: Final = 1
DEPTH: Final = 10


def shuffled(events: int) -> list[tuple[int, int | None]]:
    """Return so many events as (number, whom it follows), in order of arrival."""
    found = [(n, None if n % DEPTH == 0 else n - 1) for n in range(events)]
    Random(SEED).shuffle(found)
    return found
