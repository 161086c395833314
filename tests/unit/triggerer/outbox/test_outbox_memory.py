"""Memory while no event can be stored: bounded in bytes, for any size of message (streams B11)."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace.core.memory_budget import MemoryBudget
from headrace.streams.manager import SharedStreamManager
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.outbox.sink import OutboxSink
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.watch import WatchTrigger
from support.sources.streams import KEY, Feed, Kept, MemoryUpstream, reads, settle, until

MIB = 1024 * 1024


def line(size: int, number: int) -> RawEvent:
    """A JSON text that is ten times as large when it is parsed."""
    items = ",".join(['{"a":1}'] * (size // 8))
    return RawEvent(f'{{"n":{number},"items":[{items}]}}'.encode(), "x", number)


def mapping(size: int, number: int) -> dict[str, Any]:
    return {"n": number, "text": "x" * size}


class Big(Feed):
    """Makes raw events when they are read."""

    def __init__(self, make: Callable[[int, int], Any], size: int, name: str = "x") -> None:
        super().__init__()
        self.make, self.size, self.name = make, size, name

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        while True:
            self.read += 1
            yield self.make(self.size, self.read), (self.name, self.read, None)


def manager_and_outbox(budget: MemoryBudget) -> tuple[SharedStreamManager, Outbox]:
    outbox = Outbox(budget=budget)

    def ended(*_: Any) -> None:
        raise AssertionError("a stream ended")

    manager = SharedStreamManager(
        sink=OutboxSink(outbox, lambda seq: manager.mark_rejected(seq), ended, ended), budget=budget, close_timeout=0.5
    )
    return manager, outbox


async def until_still(feed: Feed) -> None:
    read = -1
    while read != feed.read:
        read = feed.read
        await settle(30)


@pytest.mark.parametrize("make", [line, mapping])
@pytest.mark.parametrize("size", [2_000, 200_000])
@pytest.mark.parametrize("readers", ["watch", "python", "both", "away"])
async def test_unstored_events_are_bounded_in_bytes(make: Any, size: int, readers: str) -> None:
    budget = MemoryBudget(2 * MIB)
    manager, outbox = manager_and_outbox(budget)
    feed = Big(make, size)
    manager.hold(KEY)
    if readers in ("python", "both"):
        manager.subscribe(trigger_id=2, trigger=reads(feed)(), key=KEY, backlog=Kept())
    if readers == "away":
        manager.register(trigger_ids=[2], key=KEY)
    if readers != "python":
        manager.watch(triggers={1: WatchTrigger(upstream=MemoryUpstream.of(feed), id="$.n")}, key=KEY)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        manager.release(KEY)
        await until_still(feed)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert feed.read >= 1
    assert budget.used <= budget.limit + budget.limit // 64 + 4 * size
    assert held - before <= budget.limit + budget.limit // 8 + 6 * size, "what it counts is what it holds"
    assert feed.read * size < 3 * budget.limit
    await manager.stop_all()
    assert budget.used == outbox.held_bytes


async def test_one_message_larger_than_the_budget_passes_alone() -> None:
    budget = MemoryBudget(MIB)
    manager, outbox = manager_and_outbox(budget)
    feed = Big(line, 5 * MIB)
    manager.watch(triggers={1: WatchTrigger(upstream=MemoryUpstream.of(feed), id="$.n")}, key=KEY)
    for number in range(1, 4):
        [pending] = await outbox.take(10, MIB)
        await until_still(feed)
        assert feed.read == number
        assert pending.seq is not None
        manager.confirm_persisted([pending.seq])
    await manager.stop_all()


async def test_a_stream_at_its_limit_leaves_capacity_for_other_streams() -> None:
    budget = MemoryBudget(8 * MIB)
    manager, outbox = manager_and_outbox(budget)
    stuck, other = Big(line, 100_000), Big(line, 100_000, "y")
    manager.subscribe(trigger_id=2, trigger=reads(stuck)(), key="stuck", backlog=Kept())
    await until(lambda: stuck.read)
    await until_still(stuck)
    manager.watch(triggers={1: WatchTrigger(upstream=MemoryUpstream.of(other), id="$.n")}, key=KEY)
    for _ in range(100):
        [pending, *_] = await outbox.take(1, MIB)
        assert pending.seq is not None
        manager.confirm_persisted([pending.seq])
    assert other.read >= 100
    await manager.stop_all()
    assert budget.used == outbox.held_bytes
