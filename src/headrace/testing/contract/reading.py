"""Read a producer without a shared stream, as the contract suite and the tests of sources do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import SharedStreamProducer

READ_TIMEOUT_SECONDS: Final = 120.0


class Reading:
    """The stream of one producer, read as fast as it comes."""

    def __init__(self, producer: SharedStreamProducer) -> None:
        self.producer = producer
        self._queue: asyncio.Queue[tuple[Any, Any] | Exception] = asyncio.Queue()

    async def run(self) -> None:
        """Read the stream into the queue until it ends or is cancelled."""
        try:
            async for item in self.producer.open_stream():
                self._queue.put_nowait(item)
        except Exception as error:
            self._queue.put_nowait(error)
            raise

    async def take(self, count: int) -> list[tuple[Any, Any]]:
        """Return the next `count` pairs of raw event and broker payload.

        Raises:
            TimeoutError: They did not come in READ_TIMEOUT_SECONDS.
            Exception: The stream raised it.
        """
        items: list[tuple[Any, Any]] = []
        try:
            async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                while len(items) < count:
                    item = await self._queue.get()
                    if isinstance(item, Exception):
                        raise item
                    items.append(item)
        except TimeoutError as error:
            ends = f", from {items[0][0].position} to {items[-1][0].position}" if items else ""
            raise TimeoutError(f"{len(items)} of {count} messages arrived in {READ_TIMEOUT_SECONDS:g} s{ends}.") from error
        return items

    async def advance(self, items: Iterable[tuple[Any, Any]]) -> None:
        """Advance past these items, with one call for each lane."""
        lanes: dict[Any, list[AdvanceItem]] = {}
        for _, payload in items:
            lanes.setdefault(self.producer.get_advance_lane(payload), []).append(AdvanceItem(payload, AdvanceOutcome(1, 0)))
        for batch in lanes.values():
            await self.producer.advance(batch)

    async def take_advancing(self, broker: Broker, count: int) -> list[tuple[Any, Any]]:
        """Return the next `count` pairs. Advance past each where the broker may deliver no more otherwise."""
        if broker.unbounded:
            return await self.take(count)
        items: list[tuple[Any, Any]] = []
        while len(items) < count:
            items += await self.take(1)
            await self.advance(items[-1:])
        return items


def texts(broker: Broker, items: Iterable[tuple[Any, Any]]) -> list[bytes]:
    """Return the messages as they arrived, or by length and content if the broker has no order."""
    arrived = [raw.data for raw, _ in items]
    return arrived if broker.ordered else sorted(arrived, key=lambda text: (len(text), text))


def others(sent: Iterable[bytes], items: Iterable[tuple[Any, Any]]) -> list[bytes]:
    """Return the messages that were sent and are not among the items."""
    done = {raw.data for raw, _ in items}
    return [message for message in sent if message not in done]


@asynccontextmanager
async def reading(producer: SharedStreamProducer) -> AsyncIterator[Reading]:
    """Read from the producer until the block ends, then close it."""
    current = Reading(producer)
    task = asyncio.create_task(current.run())
    try:
        yield current
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await producer.aclose()


@asynccontextmanager
async def opened(producer: SharedStreamProducer) -> AsyncIterator[AsyncGenerator[tuple[Any, Any], None]]:
    """Open the producer's stream for one-by-one reads. Closes the stream, not the producer."""
    stream = producer.open_stream()
    if not isinstance(stream, AsyncGenerator):
        raise TypeError(f"{type(producer).__name__}.open_stream must be an async generator, not {type(stream).__name__}.")
    async with asyncio.timeout(READ_TIMEOUT_SECONDS), aclosing(stream):
        yield stream
