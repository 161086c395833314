"""The next batch of the outbox: in order, bounded, and a spill only after all older items."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.triggerer.outbox.outbox import Item, Outbox, OutboxItem
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import EventItem
from headrace.wire.custody.receipts import Receipt


def event(number: int, size: int = 2) -> EventItem:
    return EventItem(id=f"e{number}", source="s", type="t", payload="x" * size, firings=[1])


def spill(number: int, size: int = 2) -> SpillItem:
    return SpillItem(stream="s", lane="l", position=number, raw="x" * size, triggers=[2])


def filled(items: Sequence[Item], bound: int = 8192) -> Outbox:
    outbox = Outbox(bound)
    for item in items:
        outbox.put(OutboxItem(item))
    return outbox


async def took(outbox: Outbox, most: int = 2000, most_bytes: int = 1 << 20) -> list[Item]:
    async with asyncio.timeout(120):
        return [pending.item for pending in await outbox.take(most, most_bytes)]


async def took_spills(outbox: Outbox, most: int = 2000, most_bytes: int = 1 << 20) -> list[Item]:
    async with asyncio.timeout(120):
        return [pending.item for pending in await outbox.take_spills(most, most_bytes, 0.0)]


async def is_waiting(task: asyncio.Task[list[Item]]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not task.done()


async def test_spills_of_a_stuck_trigger_travel_apart_from_events() -> None:
    outbox = filled([*map(spill, range(1024)), event(1), event(2)])
    assert await took(outbox) == [event(1), event(2)]
    assert await took_spills(outbox, most=128) == [*map(spill, range(128))]
    outbox.put(OutboxItem(event(3)))
    assert await took(outbox) == [event(3)]
    assert await took_spills(outbox) == [*map(spill, range(128, 1024))]


async def test_a_spill_does_not_overtake_older_events_of_its_trigger() -> None:
    own = [replace(event(number), firings=[2]) for number in range(2500)]
    outbox = filled([*own, spill(2500)])
    taking = asyncio.create_task(took_spills(outbox))
    for part in (own[:2000], own[2000:]):
        assert await took(outbox) == part
        assert await is_waiting(taking)  # what was taken is not durable yet
    outbox.put(OutboxItem(event(2501)))
    assert await took(outbox) == [event(2501)]  # what was taken before is
    assert await taking == [spill(2500)]


async def test_only_spills_older_than_all_pending_items_are_sent() -> None:
    outbox = filled([spill(1), event(2), spill(3)])
    assert await took_spills(outbox) == [spill(1)]
    assert await took(outbox) == [event(2)]
    taking = asyncio.create_task(took_spills(outbox))
    assert await is_waiting(taking)
    waiting = asyncio.create_task(took(outbox))
    assert await taking == [spill(3)]
    assert await is_waiting(waiting)
    waiting.cancel()


async def test_a_receipt_does_not_delay_spills() -> None:
    outbox = filled([spill(1)])
    outbox.put_first(OutboxItem(Receipt(stream="s", lane="l", after=None, last=1, read=1, owed=[1])))
    assert await took_spills(outbox) == [spill(1)]


async def test_a_spill_waits_for_older_requeued_items() -> None:
    outbox = filled([*map(event, range(3)), spill(3)])
    before = await outbox.take(3, 1 << 20)
    outbox.requeue(before)
    assert await took(outbox, most=2) == [event(0), event(1)]
    taking = asyncio.create_task(took_spills(outbox))
    assert await took(outbox) == [event(2)]
    assert await is_waiting(taking)
    waiting = asyncio.create_task(took(outbox))
    assert await taking == [spill(3)]
    waiting.cancel()


async def test_taken_items_are_pending_until_the_next_take() -> None:
    outbox = filled([event(1), spill(2)])
    assert await took(outbox) == [event(1)]
    assert [pending.item for pending in outbox.sent] == [event(1)]
    asking = asyncio.create_task(took(outbox))
    assert await is_waiting(asking)
    assert not [*outbox.sent]
    assert await took_spills(outbox) == [spill(2)]
    assert [pending.item for pending in outbox.sent] == [spill(2)]
    asking.cancel()


async def test_a_receipt_precedes_other_items() -> None:
    outbox = filled([spill(1), event(1)])
    receipt = Receipt(stream="s", lane="l", after=None, last=1, read=1, owed=[1])
    outbox.put_first(OutboxItem(receipt))
    assert await took(outbox) == [receipt, event(1)]


async def test_capacity_returns_once_enough_items_are_taken() -> None:
    outbox = filled([event(1), event(2), spill(1)], bound=3)
    waiting = asyncio.create_task(outbox.wait_capacity())
    await asyncio.sleep(0)
    assert not waiting.done()
    await took(outbox, most=1)
    await asyncio.wait_for(waiting, 5)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50)), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 100))
def test_items_are_taken_once_in_order_and_within_limits(sizes: list[tuple[bool, int]], most: int, most_bytes: int) -> None:
    items: list[Item] = [spill(number, size) if spilled else event(number, size) for number, (spilled, size) in enumerate(sizes)]

    async def all_of(outbox: Outbox) -> list[list[Item]]:
        calls = []
        while any(not isinstance(pending.item, SpillItem) for pending in outbox):
            calls.append(await took(outbox, most, most_bytes))
        last = asyncio.create_task(took(outbox))
        while len(outbox):
            calls.append(await took_spills(outbox, most, most_bytes))
        last.cancel()
        return calls

    calls = asyncio.run(all_of(filled(items)))
    assert all(1 <= len(call) <= most for call in calls)
    assert all(len(call) == 1 or sum(_size(item) for item in call) <= most_bytes for call in calls)
    for kind in (EventItem, SpillItem):
        assert [item for call in calls for item in call if isinstance(item, kind)] == [item for item in items if isinstance(item, kind)]


@pytest.mark.parametrize("seed", range(20))
async def test_all_older_items_are_answered_when_a_spill_is_taken(seed: int) -> None:
    """A crash may come at any time: then a spill is durable only with all that was there before it."""
    chance = random.Random(seed)
    outbox, under_way = Outbox(), list[OutboxItem]()
    spills = list[OutboxItem]()
    for number in range(600):
        make = spill if chance.random() < 0.4 else event
        outbox.put(OutboxItem(make(number, chance.randint(1, 50))))
        queued = [pending.order for pending in outbox if not isinstance(pending.item, SpillItem)]
        if chance.random() < 0.1 and queued:
            under_way = await outbox.take(chance.randint(1, 20), chance.randint(1, 400))
        elif chance.random() < 0.05:
            outbox.requeue(under_way)
            under_way = []
        elif chance.random() < 0.05:
            outbox.requeue(spills)
            spills = []
        waiting = [pending.order for pending in outbox if isinstance(pending.item, SpillItem)]
        queued = [pending.order for pending in outbox if not isinstance(pending.item, SpillItem)]
        oldest = min([*queued, *(pending.order for pending in under_way)], default=number + 2)
        if chance.random() < 0.2 and waiting and waiting[0] < oldest:
            spills = await outbox.take_spills(chance.randint(1, 20), chance.randint(1, 400), 0.0)
            assert [pending.order for pending in spills] == waiting[: len(spills)], f"seed {seed}"
            assert all(pending.order < oldest for pending in spills), f"seed {seed}"


def _size(item: Item) -> int:
    return len(item.payload) if isinstance(item, EventItem) else len(item.raw) if isinstance(item, SpillItem) else 0
