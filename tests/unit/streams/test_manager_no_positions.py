"""The stream assigns positions to raw events of an upstream without them, and derives ids from the ids of messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.streams.manager import SharedStreamManager
from headrace.streams.sink import RejectedEvent
from headrace.triggers.event import TriggerEvent, reject_shared_stream_event
from headrace.triggers.raw_event import Message
from headrace.triggers.watch import WatchTrigger
from support.sources.streams import KEY, Engine, Feed, Keeper, MemoryUpstream, Reads, until

TICK = {"tick": True}


class NoPositions(Feed):
    """A broker that says no positions, as by default."""

    def get_position(self, broker_payload: Any) -> int | None:
        return None


class SomePositions(Feed):
    """A broker that gives every second raw event a position."""

    def get_position(self, broker_payload: Any) -> int | None:
        position = super().get_position(broker_payload)
        return position if position is not None and position % 2 == 0 else None


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


async def test_equal_raw_events_are_spilled_with_assigned_positions_in_a_lane_of_the_opening() -> None:
    lanes = []
    for _ in range(2):
        feed = NoPositions([TICK] * 5)
        keeper, manager = scene(1, 2)
        engine(manager, keeper, feed, Reads)
        await until(lambda feed=feed: len(feed.advanced) == 5)  # type: ignore[misc]
        assert [spill.position for spill in keeper.spills] == [1, 2, 3, 4, 5]
        (lane,) = {spill.lane for spill in keeper.spills}
        lanes.append(lane)
        await manager.stop_all()
    assert len(set(lanes)) == 2
    assert {lane.partition("@")[0] for lane in lanes} == {"default"}


async def test_failures_of_equal_raw_events_are_counted_separately() -> None:
    feed = NoPositions([TICK] * 8)
    keeper, manager = scene(1, max_attempts=3)
    raising = engine(manager, keeper, feed, RaisesOnce)
    await until(lambda: len(raising.events) == 8)
    assert raising.faults == [1] * 8
    assert not keeper.letters
    await manager.stop_all()


async def test_equal_rejected_raw_events_have_separate_dead_letters() -> None:
    feed = NoPositions([TICK] * 5)
    keeper, manager = scene(1)
    engine(manager, keeper, feed, Rejects)
    await until(lambda: len(feed.advanced) == 5)
    letters = [letter for letter in keeper.letters if isinstance(letter, RejectedEvent)]
    assert len({(letter.lane, letter.position) for letter in letters}) == 5
    await manager.stop_all()


@pytest.mark.parametrize(("kind", "assigned"), [(Feed, False), (NoPositions, True)])
async def test_matches_say_whether_their_position_is_assigned(kind: type[Feed], assigned: bool) -> None:
    feed = kind([TICK] * 3)
    keeper, manager = scene()
    manager.watch(triggers={7: WatchTrigger(upstream=MemoryUpstream.of(feed), id="$.id")}, key=KEY)
    await until(lambda: len(feed.advanced) == 3)
    assert [(matched.assigned, matched.message_id) for matched in keeper.events] == [(assigned, None)] * 3
    assert len({(matched.lane, matched.position) for matched in keeper.events}) == 3
    await manager.stop_all()


async def test_the_id_of_a_message_identifies_it_for_watches_and_dead_letters() -> None:
    feed = NoPositions([Message(b"{}", "queue", None, id=id) for id in ("m1", "m2", "m1")])
    keeper, manager = scene(1)
    engine(manager, keeper, feed, Rejects)
    manager.watch(triggers={7: WatchTrigger(upstream=MemoryUpstream.of(feed))}, key=KEY)
    await until(lambda: len(feed.advanced) == 3)
    letters = [letter for letter in keeper.letters if isinstance(letter, RejectedEvent)]
    assert [letter.message_id for letter in letters] == ["m1", "m2", "m1"]
    assert [matched.message_id for matched in keeper.events] == ["m1", "m2", "m1"]
    await manager.stop_all()


async def test_a_raw_event_without_a_position_among_others_is_rejected_alone() -> None:
    feed = SomePositions([TICK] * 4)
    keeper, manager = scene()
    manager.watch(triggers={7: WatchTrigger(upstream=MemoryUpstream.of(feed), id="$.tick")}, key=KEY)
    await until(lambda: len(feed.advanced) == 4)
    assert len(keeper.events) == 2
    assert ["positions for some raw events only" in letter.reason for letter in keeper.dead] == [True, True]
    assert len({letter.message_id for letter in keeper.dead}) == 2
    await manager.stop_all()


async def test_dead_letters_of_messages_with_positions_are_separate_although_their_sender_repeats_an_id() -> None:
    feed = Feed([Message(b'{"n":%d}' % number, "queue", number, id="m1") for number in (1, 2)])
    keeper, manager = scene(1)
    engine(manager, keeper, feed, Rejects)
    manager.watch(triggers={7: WatchTrigger(upstream=MemoryUpstream.of(feed))}, key=KEY)
    await until(lambda: len(feed.advanced) == 2)
    letters = [letter for letter in keeper.letters if isinstance(letter, RejectedEvent)]
    assert [(letter.position, letter.message_id) for letter in letters] == [(1, None), (2, None)]
    assert [matched.message_id for matched in keeper.events] == ["m1", "m1"]
    await manager.stop_all()
