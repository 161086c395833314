"""Timeouts for the calls of a stream, shortened during shutdown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.streams.limits.close_grace import ADVANCE_SHARE, CloseDeadline


class ShutdownDeadline:
    """Timeouts and pauses that are limited, once the stream ends, to the share of its close timeout for advancing."""

    def __init__(self, grace: CloseDeadline) -> None:
        self._grace = grace
        self._ended = asyncio.Event()
        self._running: set[asyncio.Timeout] = set()
        self._random = random.SystemRandom()

    @property
    def ended(self) -> bool:
        """Whether the stream is ending."""
        return self._ended.is_set()

    def end(self) -> None:
        """Limit the running calls to the close timeout."""
        if not self._ended.is_set():
            self._ended.set()
            limit = asyncio.get_running_loop().time() + self._grace.left(ADVANCE_SHARE)
            for timeout in self._running:
                if not timeout.expired():  # an expired call that swallowed its cancellation still runs
                    when = timeout.when()
                    timeout.reschedule(limit if when is None else min(when, limit))

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncIterator[None]:
        """Raise `TimeoutError` in the block after `seconds` (None: no limit), or after the close timeout once the stream ends."""
        if self.ended:
            left = self._grace.left(ADVANCE_SHARE)
            seconds = left if seconds is None else min(seconds, left)
        async with asyncio.timeout(seconds) as timeout:
            self._running.add(timeout)
            try:
                yield
            finally:
                self._running.discard(timeout)

    async def pause(self, first_seconds: float, max_seconds: float, attempt: int) -> bool:
        """Wait before retry number `attempt`, exponentially longer with jitter. Return False if the stream ends."""
        seconds = min(max_seconds, first_seconds * 2.0 ** min(attempt - 1, 30)) * (0.5 + self._random.random() / 2)
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return True
        return False
