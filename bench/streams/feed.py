"""The upstream of both sides. It never waits, and sets an event when the last raw event is advanced."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

YIELD_INTERVAL_EVENTS: Final = 256
"""Raw events between two yields to other coroutines. The peer fails subscribers that are 1,024 behind, so a bound is necessary."""

_STATM: Final = Path("/proc/self/statm")


class Feed:
    """Yields `events` raw events: the entries of `templates` repeatedly. `fresh` creates each from its template and its number.

    The clock starts when the first raw event is requested. It stops when the last is advanced, or, without acks, read by all.
    """

    def __init__(
        self, templates: Sequence[Any], events: int, *, lanes: int = 1, samples: int = 0, fresh: Callable[[Any, int], Any] | None = None
    ) -> None:
        self.templates = templates
        self.events = events
        self.lanes = lanes
        self.done = asyncio.Event()
        self.seconds = self.cpu = 0.0
        self.resident: list[int] = []
        self._fresh = fresh
        self._sample_interval = events // samples if samples else events + 1
        self._advanced = 0
        self._begun = self._begun_cpu = 0.0

    async def pairs(self) -> AsyncIterator[tuple[Any, int]]:
        """Yield raw events with their numbers as payload."""
        templates, size, fresh = self.templates, len(self.templates), self._fresh
        self._begin()
        for number in range(self.events):
            raw = templates[number % size]
            yield (raw if fresh is None else fresh(raw, number)), number
            if number % YIELD_INTERVAL_EVENTS == YIELD_INTERVAL_EVENTS - 1:
                await self._yield_control(number)
        await asyncio.Event().wait()

    async def bare(self) -> AsyncIterator[Any]:
        """Yield raw events alone, for the path without acks."""
        templates, size = self.templates, len(self.templates)
        self._begin()
        for number in range(self.events):
            yield templates[number % size]
            if number % YIELD_INTERVAL_EVENTS == YIELD_INTERVAL_EVENTS - 1:
                await self._yield_control(number)
        await asyncio.Event().wait()

    def advanced(self, count: int) -> None:
        """Count advanced raw events; stop the clock after the last."""
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

    async def _yield_control(self, number: int) -> None:
        if number >= self._sample_interval * (len(self.resident) + 1):
            self.resident.append(resident_bytes())
        await asyncio.sleep(0)


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, or its maximum if the system does not report the current value."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
