"""How long the calls of a stream may take: as long as they may while it lives, and not without end once it is to stop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.streams.limits.close_grace import ADVANCE_SHARE, CloseDeadline


class ShutdownDeadline:
    """Timeouts and pauses that get short when the stream ends: what its grace leaves for advancing."""

    def __init__(self, grace: CloseDeadline) -> None:
        self._grace = grace
        self._ended = asyncio.Event()
        self._running: set[asyncio.Timeout] = set()
        self._chance = random.SystemRandom()

    @property
    def ended(self) -> bool:
        """Whether the stream is to stop."""
        return self._ended.is_set()

    def end(self) -> None:
        """Give what runs the grace and no more."""
        if not self._ended.is_set():
            self._ended.set()
            limit = asyncio.get_running_loop().time() + self._grace.left(ADVANCE_SHARE)
            for timeout in self._running:
                if not timeout.expired():  # what swallows its cancellation is still running, and its time is up already
                    when = timeout.when()
                    timeout.reschedule(limit if when is None else min(when, limit))

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncIterator[None]:
        """Raise `TimeoutError` in what takes longer than `seconds` (None: no limit), or than the grace once the end has come."""
        if self.ended:
            left = self._grace.left(ADVANCE_SHARE)
            seconds = left if seconds is None else min(seconds, left)
        async with asyncio.timeout(seconds) as timeout:
            self._running.add(timeout)
            try:
                yield
            finally:
                self._running.discard(timeout)

    async def pause(self, first: float, most: float, attempt: int) -> bool:
        """Wait before try number `attempt` (1: the second), longer each time, with jitter; False: the end has come."""
        seconds = min(most, first * 2.0 ** min(attempt - 1, 30)) * (0.5 + self._chance.random() / 2)
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return True
        return False
