"""Yield to the event loop during long work."""

from __future__ import annotations

import asyncio

_LONGEST = 0.004  # seconds; what it makes runs in the same turn of the loop, and takes as long again or longer


class CooperativeYield:
    """One long piece of synchronous work, cut where it may be."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    async def rest(self) -> None:
        """Yield to other tasks if enough time has passed."""
        if self._loop.time() - self._began > _LONGEST:
            await asyncio.sleep(0)
            self._began = self._loop.time()
