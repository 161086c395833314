"""Read a queue in memory as a shared stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator, Sequence
from contextlib import suppress
from operator import length_hint
from typing import Final

from headrace.core.ledger.outcome import AdvanceItem
from headrace.sources.memory.store import MemoryStore
from headrace.triggers.raw_event import Message
from headrace.triggers.upstream import SharedStreamProducer

FETCH_OF_A_LANE: Final = 256


class MemoryProducer(SharedStreamProducer):
    """The producer of a `Memory`: yields `Message`s. A failed message is redelivered, before later ones, at the next opening."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._news = asyncio.Event()
        self._fetched: Iterator[Message] = iter(())

    async def open_stream(self) -> AsyncIterator[tuple[Message, Message]]:
        """Take over the queue and yield its messages without end. Raises `UpstreamError` if another producer has it."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            # A closed loop has no task left to wake.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._news.set)

        self._store.take_over(self, wake)
        while True:
            self._news.clear()
            messages = self._store.fetch(FETCH_OF_A_LANE)
            self._fetched = iter(messages)
            for message in self._fetched:
                yield message, message
            if not messages:
                await self._news.wait()

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Delete the batch. Rejected messages become dead letters, failed ones stay."""
        self._store.commit(self, batch)

    def get_advance_lane(self, broker_payload: Message) -> Hashable:
        """Return the message's lane."""
        return broker_payload.lane

    def get_position(self, broker_payload: Message) -> int | None:
        """Return the message's number in its lane, counted from 1."""
        return broker_payload.position

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the position of the lane's last message."""
        stored_lane = self._store.lanes.get(str(lane))
        return None if stored_lane is None else stored_lane.last

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the position before the lane's oldest remaining message, or None until the first is deleted."""
        stored_lane = self._store.lanes.get(str(lane))
        return None if stored_lane is None else stored_lane.committed

    def get_unread(self) -> int | None:
        """Return the number of messages after the last ones read, in all lanes."""
        return length_hint(self._fetched) + sum(lane.last - lane.read for lane in tuple(self._store.lanes.values()))

    async def aclose(self) -> None:
        """Release the queue for another producer."""
        self._store.release(self)
