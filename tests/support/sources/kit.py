"""Reading an upstream in tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from watchfiles import awatch

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.triggers.upstream import SharedStreamProducer

PATIENCE = 60.0


class Reading:
    """All that a producer yields, pumped into a queue as fast as it comes."""

    def __init__(self, producer: SharedStreamProducer) -> None:
        self.producer = producer
        self._queue: asyncio.Queue[tuple[Any, Any] | Exception] = asyncio.Queue()

    async def pump(self) -> None:
        try:
            async for item in self.producer.open_stream():
                self._queue.put_nowait(item)
        except Exception as error:
            self._queue.put_nowait(error)
            raise

    async def take(self, count: int) -> list[tuple[Any, Any]]:
        """Return the next `count` items; raise what the stream raised."""
        items: list[tuple[Any, Any]] = []
        async with asyncio.timeout(PATIENCE):
            while len(items) < count:
                item = await self._queue.get()
                if isinstance(item, Exception):
                    raise item
                items.append(item)
        return items

    async def advance(self, items: Iterable[tuple[Any, Any]]) -> None:
        """Advance past these items, one call for each lane."""
        lanes: dict[Any, list[AdvanceItem]] = {}
        for _, payload in items:
            lanes.setdefault(self.producer.get_advance_lane(payload), []).append(AdvanceItem(payload, AdvanceOutcome(1, 0)))
        for batch in lanes.values():
            await self.producer.advance(batch)


@asynccontextmanager
async def reading(producer: SharedStreamProducer) -> AsyncIterator[Reading]:
    """Read from the producer until the block ends, then close it."""
    held = Reading(producer)
    task = asyncio.create_task(held.pump())
    try:
        yield held
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await producer.aclose()


@asynccontextmanager
async def opened(producer: SharedStreamProducer) -> AsyncIterator[AsyncGenerator[tuple[Any, Any], None]]:
    """Open the producer's stream, to be pulled one by one; closes the stream, not the producer."""
    stream = producer.open_stream()
    assert isinstance(stream, AsyncGenerator)
    async with asyncio.timeout(PATIENCE), aclosing(stream):
        yield stream


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
