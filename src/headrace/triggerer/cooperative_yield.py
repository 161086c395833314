"""Let the loop turn while there is much to do."""

from __future__ import annotations

import asyncio

_LONGEST = 0.004  # seconds; what it makes runs in the same turn of the loop, and takes as long again or longer


class CooperativeYield:
    """One long piece of synchronous work, cut where it may be."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    async def rest(self) -> None:
        """Let others run, if this has gone on for long enough."""
        if self._loop.time() - self._began > _LONGEST:
            await asyncio.sleep(0)
            self._began = self._loop.time()
