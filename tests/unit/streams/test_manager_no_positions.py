"""Equal raw events of an upstream without positions have separate identities in spills, dead letters and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.streams.manager import SharedStreamManager
from headrace.streams.sink import RejectedEvent
from headrace.triggers.event import TriggerEvent, reject_shared_stream_event
from headrace.triggers.watch import WatchTrigger
from support.sources.streams import KEY, Engine, Feed, Keeper, MemoryUpstream, Reads, until

TICK = {"tick": True}


class NoPositions(Feed):
    """A broker that says no positions, as by default."""

    def get_position(self, broker_payload: Any) -> int | None:
        return None


class RaisesOnce(Reads):
    """Raises at each raw event the first time that it comes; equal ones are told apart by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.raised = False
        self.done = 0

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for raw in stream:
            if not self.raised:
                self.raised = True
                raise ValueError("once")
            self.raised = False
            self.done += 1
            yield TriggerEvent(raw)


class Rejects(Reads):
    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for raw in stream:
            reject_shared_stream_event("no")
            if raw != TICK:
                yield TriggerEvent(raw)


def scene(*registered: int, **bounds: Any) -> tuple[Keeper, SharedStreamManager]:
    keeper = Keeper()
    manager = keeper.manager = SharedStreamManager(sink=keeper, **bounds)
    manager.register(trigger_ids=registered, key=KEY)
    return keeper, manager


def engine(manager: SharedStreamManager, keeper: Keeper, feed: Feed, kind: type[Reads]) -> Engine:
    made = Engine(manager, keeper, 1, type("Bound", (kind,), {"feed": feed})())
    made.start()
    return made


async def test_equal_raw_events_are_spilled_with_separate_ids() -> None:
    feed = NoPositions([TICK] * 5)
    keeper, manager = scene(1, 2)
    engine(manager, keeper, feed, Reads)
    await until(lambda: len(feed.advanced) == 5)
    assert [spill.position for spill in keeper.spills] == [None] * 5
    assert len({spill.delivery_id for spill in keeper.spills}) == 5
    await manager.stop_all()


async def test_failures_of_equal_raw_events_are_counted_separately() -> None:
    feed = NoPositions([TICK] * 8)
    keeper, manager = scene(1, max_attempts=3)
    raising = engine(manager, keeper, feed, RaisesOnce)
    await until(lambda: len(raising.events) == 8)
    assert raising.faults == [1] * 8
    assert not keeper.letters
    await manager.stop_all()


async def test_equal_rejected_raw_events_have_dead_letters_with_separate_ids() -> None:
    feed = NoPositions([TICK] * 5)
    keeper, manager = scene(1)
    engine(manager, keeper, feed, Rejects)
    await until(lambda: len(feed.advanced) == 5)
    letters = [letter for letter in keeper.letters if isinstance(letter, RejectedEvent)]
    assert len({letter.delivery_id for letter in letters}) == 5
    await manager.stop_all()


@pytest.mark.parametrize("kind", [Feed, NoPositions])
async def test_watches_receive_an_id_only_without_a_position(kind: type[Feed]) -> None:
    feed = kind([TICK] * 3)
    keeper, manager = scene()
    manager.watch(triggers={7: WatchTrigger(upstream=MemoryUpstream.of(feed), id="$.id")}, key=KEY)
    await until(lambda: len(feed.advanced) == 3)
    ids = [matched.delivery_id for matched in keeper.events]
    assert len(set(ids)) == (3 if kind is NoPositions else 1)
    assert (None in ids) is (kind is Feed)
    await manager.stop_all()
    await asyncio.sleep(0)
