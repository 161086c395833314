"""The read-ahead of producers in separate processes counts in the memory budget of the triggerer."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar, Self

import pytest

from headrace.core.ledger.outcome import AdvanceItem
from headrace.core.memory_budget import MemoryBudget
from headrace.streams.manager import SharedStreamManager
from headrace.streams.upstream.producer_factory import StreamOpener
from headrace.triggerer.ipc.packing import size_of
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.outbox.sink import OutboxSink
from headrace.triggerer.process_pools.producer_pool import ProducerProcesses
from headrace.triggerer.process_pools.remote_producer import RemoteProducer
from headrace.triggerer.user_process.hosted_producer import FIRST_AHEAD_BYTES, ITEM_BYTES
from headrace.triggers.base import BaseEventTrigger, stream_name
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.upstream import SharedStreamProducer
from headrace.triggers.watch import WatchTrigger
from support.processes.trigger_process import local_producers
from support.sources.streams import MemoryUpstream, settle

KIB = 1024
MIB = 1024 * KIB
MINE = b'{"text":"read ahead'
"""How these tests' messages begin: others in this process keep raw events too."""


class Endless(SharedStreamProducer):
    """Yields messages of `size` bytes for ever; `read` says how many of each stream."""

    size: ClassVar[int] = 0
    read: ClassVar[list[Endless]] = []

    def __init__(self) -> None:
        self.count = 0
        Endless.read.append(self)

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        while True:
            self.count += 1
            yield RawEvent(MINE + b"x" * self.size + b'"}', "a", self.count), self.count

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        pass

    def get_advance_lane(self, broker_payload: Any) -> Any:
        return "a"


class Reads(BaseEventTrigger):
    """Opens an `Endless`."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Reads", {}

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        return Endless()


class Away:
    """The streams of a runner whose api is away: nothing that they fire is taken until `store`."""

    def __init__(self, limit: int, size: int) -> None:
        Endless.size = size
        Endless.read.clear()
        self.budget = MemoryBudget(limit)
        self.outbox = Outbox(budget=self.budget)
        self.pool: ProducerProcesses = local_producers()
        self.remotes: list[RemoteProducer] = []
        sink = OutboxSink(self.outbox, lambda seq: self.manager.mark_rejected(seq), self._ended, self._ended)
        self.manager = SharedStreamManager(sink=sink, budget=self.budget, close_timeout=0.5, make_producer=self._make)

    def open(self, streams: int) -> None:
        for number in range(streams):
            key = f"s{number}"
            self.manager.watch(triggers={number + 1: WatchTrigger(upstream=MemoryUpstream(key))}, key=key)

    async def until_still(self) -> None:
        read = -1
        while read != sum(one.count for one in Endless.read):
            read = sum(one.count for one in Endless.read)
            await settle(200)

    async def store(self, most: int) -> int:
        taken = await self.outbox.take(most, MIB)
        self.manager.confirm_persisted([one.seq for one in taken if one.seq is not None])
        return len(taken)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.manager.stop_all()
        await self.pool.close()
        assert any(raised) or self.budget.used == self.outbox.held_bytes

    @property
    def held_by_producers(self) -> int:
        """What was read and has not come to a stream."""
        return sum(size_of(one.raw) for remote in self.remotes for one in remote._items)

    def _make(self, key: Any, opener: StreamOpener) -> SharedStreamProducer:
        del opener
        remote = RemoteProducer(stream_name(key), f"{__name__}.Reads", b"{}", self.pool, self.budget, acks=True)
        self.remotes.append(remote)
        return remote

    def _ended(self, *_: Any) -> None:
        raise AssertionError("a stream ended")


@pytest.mark.parametrize(("streams", "size"), [(64, 256 * KIB), (64, 4 * KIB), (200, 100), (16, 3 * MIB)])
async def test_read_ahead_during_an_api_outage_counts_in_the_budget(streams: int, size: int) -> None:
    async with Away(16 * MIB, size) as away:
        away.open(streams)
        await away.until_still()
        assert len(Endless.read) == streams
        assert all(one.count for one in Endless.read), "each stream reads, whatever the others hold"
        read = sum(one.count for one in Endless.read) * size
        one_more = size + ITEM_BYTES + FIRST_AHEAD_BYTES
        assert away.budget.used <= away.budget.limit + away.budget.limit // 64 + streams * 3 * one_more
        assert read <= away.budget.limit + streams * one_more, "what is in all processes, without what objects cost"
        assert away.held_by_producers <= away.budget.used


async def test_a_message_larger_than_the_budget_passes_alone_on_each_of_many_streams() -> None:
    async with Away(MIB, 3 * MIB) as away:
        away.open(4)
        stored = 0
        while stored < 12:
            stored += await away.store(1)
        await away.until_still()
        assert all(one.count > 1 for one in Endless.read), "none starves"


async def test_a_paused_stream_does_not_block_other_streams() -> None:
    async with Away(8 * MIB, 64 * KIB) as away:
        away.open(1)
        await away.until_still()
        away.manager.watch(triggers={9: WatchTrigger(upstream=MemoryUpstream("other"))}, key="other")
        await away.until_still()
        first, other = Endless.read
        assert first.count * Endless.size <= away.budget.limit
        while other.count < 300:
            await away.store(1)
            await asyncio.sleep(0)


async def test_a_stream_waiting_for_capacity_retains_no_extra_message() -> None:
    async with Away(MIB, 2 * MIB) as away:
        away.open(3)
        await away.until_still()
        # What was read is to be stored, and is held in that form only. On a busy machine, a message may still be on its way.
        while any(map(_is_mine, gc.get_objects())):
            await asyncio.sleep(0.5)  # the look blocks the loop, so that looks without a pause would delay the message


def _is_mine(one: object) -> bool:
    data: Any = one.data if type(one) is RawEvent else None  # odd ones of other tests hold no bytes
    return isinstance(data, bytes) and data.startswith(MINE)
