"""The upstream of both sides: it never waits for anything, and says when the last raw event is through."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

STRETCH: Final = 256
"""After so many raw events the upstream lets others run; the peer fails subscribers that are 1,024 behind, so there must be some bound."""

_STATM: Final = Path("/proc/self/statm")


class Feed:
    """`events` raw events out of `ring`, again and again; `fresh` makes each from what the ring holds and its number.

    The clock starts when the first raw event is asked for, and stops when the last is advanced (without acks: read by everyone).
    """

    def __init__(
        self, ring: Sequence[Any], events: int, *, lanes: int = 1, samples: int = 0, fresh: Callable[[Any, int], Any] | None = None
    ) -> None:
        self.ring = ring
        self.events = events
        self.lanes = lanes
        self.done = asyncio.Event()
        self.seconds = self.cpu = 0.0
        self.resident: list[int] = []
        self._fresh = fresh
        self._sample_every = events // samples if samples else events + 1
        self._advanced = 0
        self._begun = self._begun_cpu = 0.0

    async def pairs(self) -> AsyncIterator[tuple[Any, int]]:
        """Yield raw events with their numbers as payload."""
        ring, size, fresh = self.ring, len(self.ring), self._fresh
        self._begin()
        for number in range(self.events):
            raw = ring[number % size]
            yield (raw if fresh is None else fresh(raw, number)), number
            if number % STRETCH == STRETCH - 1:
                await self._rest(number)
        await asyncio.Event().wait()

    async def bare(self) -> AsyncIterator[Any]:
        """Yield raw events alone, for the path without acks."""
        ring, size = self.ring, len(self.ring)
        self._begin()
        for number in range(self.events):
            yield ring[number % size]
            if number % STRETCH == STRETCH - 1:
                await self._rest(number)
        await asyncio.Event().wait()

    def advanced(self, count: int) -> None:
        """Count what was advanced."""
        self._advanced += count
        if self._advanced == self.events:
            self.finish()

    def finish(self) -> None:
        """Stop the clock."""
        self.seconds = perf_counter() - self._begun
        self.cpu = process_time() - self._begun_cpu
        self.done.set()

    def _begin(self) -> None:
        self._begun, self._begun_cpu = perf_counter(), process_time()

    async def _rest(self, number: int) -> None:
        if number >= self._sample_every * (len(self.resident) + 1):
            self.resident.append(resident_bytes())
        await asyncio.sleep(0)


def resident_bytes() -> int:
    """Return how much memory this process holds now (where the system does not say: at most held)."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
