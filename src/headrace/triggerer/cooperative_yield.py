"""Yield to the event loop during long work."""

from __future__ import annotations

import asyncio

_MAX_SECONDS = 0.004  # seconds; work that this triggers runs in the same turn of the loop and takes at least as long again


class CooperativeYield:
    """A long piece of synchronous work with checkpoints."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    async def checkpoint(self) -> None:
        """Yield to other tasks if enough time has passed."""
        if self._loop.time() - self._began > _MAX_SECONDS:
            await asyncio.sleep(0)
            self._began = self._loop.time()
