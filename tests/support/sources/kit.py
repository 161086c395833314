"""Wait for files in tests of sources."""

from __future__ import annotations

import asyncio
from pathlib import Path

from watchfiles import awatch

PATIENCE = 60.0


def is_there(path: Path) -> bool:
    """Tell whether `path` exists."""
    return path.exists()


async def until_there(path: Path) -> None:
    """Wait until `path` exists, told of it by the kernel."""
    async with asyncio.timeout(PATIENCE):
        if is_there(path):
            return
        async for _ in awatch(path.parent, debounce=50, step=10, rust_timeout=200, yield_on_timeout=True):
            if is_there(path):
                return
