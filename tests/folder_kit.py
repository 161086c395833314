"""What happens to a watched folder, in tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from watchfiles import awatch

from source_kit import PATIENCE


def put(path: Path, data: bytes) -> None:
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.rename(path)


def files_done(feed: Path, name: str) -> list[Path]:
    return sorted((feed / "done").glob(f"*/{name}"))


async def until_done(feed: Path, name: str, count: int = 1) -> list[Path]:
    """Wait until so many files in `done` match `name`, told of it by the kernel."""
    async with asyncio.timeout(PATIENCE):
        while len(files_done(feed, name)) < count:
            async for _ in awatch(feed, debounce=50, step=10, rust_timeout=200, yield_on_timeout=True):
                break
    return files_done(feed, name)


def lane_of(file: str, items: list[tuple[Any, Any]]) -> str:
    """Return the one lane of that file among the items."""
    (lane,) = {raw.lane for raw, _ in items if raw.lane.rpartition("@")[0] == file}
    return str(lane)
