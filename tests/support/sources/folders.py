"""What happens to a watched folder, in tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from headrace.triggers.upstream import SharedStreamProducer
from support.sources.kit import PATIENCE


def put(path: Path, data: bytes) -> None:
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.rename(path)


def files_done(feed: Path, name: str) -> list[Path]:
    return sorted((feed / "done").glob(f"*/{name}"))


async def until_done(feed: Path, name: str, count: int = 1) -> list[Path]:
    """Return the files in `done` that match `name`, once there are so many. (The kernel's word would not do: names may be any bytes.)"""
    async with asyncio.timeout(PATIENCE):
        while len(files_done(feed, name)) < count:
            await asyncio.sleep(0.01)
    return files_done(feed, name)


async def until_forgotten(producer: SharedStreamProducer, lane: str) -> None:
    """Wait until the producer is done with the lane, which it is a moment after it has moved the file."""
    async with asyncio.timeout(PATIENCE):
        while producer.get_lane_end(lane) is not None:
            await asyncio.sleep(0.01)


def lane_of(file: str, items: list[tuple[Any, Any]]) -> str:
    """Return the one lane of that file among the items."""
    (lane,) = {raw.lane for raw, _ in items if raw.lane.rpartition("@")[0] == file}
    return str(lane)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return all files below a folder, except the log of SQLite and its index, which each reader creates."""
    files = (file for file in sorted(folder.rglob("*")) if not file.name.endswith(("-shm", "-wal")))
    return {str(file): file.read_bytes() if file.is_file() else None for file in files}
