"""A feed of events that follow each other, as the world sends them: shuffled, some twice, some in cycles, some leaders late or never."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.wire.custody.events import EventItem

Numbers = npt.NDArray[np.int64]

NOBODY: Final = -1
NEVER: Final = -2
"""Whom an event follows that follows nobody, and one whose leader never comes."""

_LONGEST = 20
_BRANCHING, _LOST, _LATE, _CYCLES, _COPIES = 0.1, 0.01, 0.01, 0.005, 0.03
_FARTHEST = 50_000


@dataclass(frozen=True, slots=True, eq=False)
class CausalFeed:
    """Events 0 … count - 1: whom each follows, its cycle (NOBODY: none), who comes late, and in which order all others come, some twice."""

    follows: Numbers
    cycle: Numbers
    late: Numbers
    arrivals: Numbers

    @property
    def count(self) -> int:
        return len(self.follows)

    def batches(self, numbers: Numbers, size: int, firing: int) -> Iterator[list[EventItem]]:
        """Yield these events as they are sent."""
        for start in range(0, len(numbers), size):
            yield [self._item(number, firing) for number in numbers[start : start + size].tolist()]

    def _item(self, number: int, firing: int) -> EventItem:
        leader = int(self.follows[number])
        follows = None if leader == NOBODY else f"never-{number}" if leader == NEVER else f"e{leader}"
        payload = json.dumps({"n": number})
        return EventItem(id=f"e{number}", source="feed", type="leg", follows=follows, payload=payload, firings=[firing])


def causal_feed(count: int, seed: int) -> CausalFeed:
    """Make up a feed of so many events from a seed."""
    chance = Random(seed)
    follows = np.full(count, NOBODY, dtype=np.int64)
    cycle = np.full(count, NOBODY, dtype=np.int64)
    late: list[int] = []
    start = 0
    while start < count:
        stop = min(count, start + chance.randint(1, _LONGEST))
        _family(follows, start, stop, chance)
        what = chance.random()
        if what < _CYCLES and stop - start > 1:
            length = chance.randint(1, min(5, stop - start))
            follows[start : start + length] = [*range(start + 1, start + length), start]
            cycle[start : start + length] = start if length > 1 else NOBODY  # one that follows itself is no cycle
        elif what < _CYCLES + _LOST:
            follows[start] = NEVER
        elif what < _CYCLES + _LOST + _LATE and stop - start > 1:
            late.append(start)
        start = stop
    return CausalFeed(follows, cycle, np.array(late, dtype=np.int64), _arrivals(count, late, seed))


def _family(follows: Numbers, start: int, stop: int, chance: Random) -> None:
    """Let each event follow the one before it, or another of the family."""
    for number in range(start + 1, stop):
        follows[number] = chance.randrange(start, number) if chance.random() < _BRANCHING else number - 1


def _arrivals(count: int, late: list[int], seed: int) -> Numbers:
    """Return all but the late ones, none of them too far from its place; copies come after the first, soon or not."""
    random = np.random.default_rng(seed)
    farthest = min(_FARTHEST, max(1, count // 4))
    numbers = np.setdiff1d(np.arange(count), late)
    places = numbers + random.integers(0, farthest, len(numbers))
    copied = random.random(len(numbers)) < _COPIES
    numbers = np.concatenate([numbers, numbers[copied]])
    places = np.concatenate([places, places[copied] + random.integers(0, 2 * farthest, int(copied.sum()))])
    return numbers[np.argsort(places, kind="stable")]
