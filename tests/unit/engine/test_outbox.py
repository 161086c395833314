"""What is taken next: in order, bounded, and never all spills while something else waits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.outbox import FEW, Item, Outbox, Pending
from headrace.wire.backlog import SpillItem
from headrace.wire.custody import Receipt
from headrace.wire.events import EventItem


def event(number: int, size: int = 2) -> EventItem:
    return EventItem(id=f"e{number}", source="s", type="t", payload="x" * size, firings=[1])


def spill(number: int, size: int = 2) -> SpillItem:
    return SpillItem(stream="s", lane="l", position=number, raw="x" * size, triggers=[2])


def filled(items: Sequence[Item], bound: int = 8192) -> Outbox:
    outbox = Outbox(bound)
    for item in items:
        outbox.put(Pending(item))
    return outbox


async def took(outbox: Outbox, most: int = 2000, most_bytes: int = 1 << 20) -> list[Item]:
    async with asyncio.timeout(5):
        return [pending.item for pending in await outbox.take(most, most_bytes)]


async def test_a_stuck_trigger_s_queue_does_not_hold_up_what_others_fired() -> None:
    outbox = filled([*map(spill, range(1024)), event(1), event(2)])
    assert await took(outbox) == [event(1), event(2), *map(spill, range(FEW))]
    outbox.put(Pending(event(3)))
    assert await took(outbox) == [event(3), *map(spill, range(FEW, 2 * FEW))]


async def test_neither_starves_where_both_come_without_end() -> None:
    outbox = filled([*map(event, range(2000)), *map(spill, range(3000)), *map(event, range(2000, 4000))])
    calls = [await took(outbox) for _ in range(4)]
    shares = [[sum(isinstance(item, kind) for item in call) for kind in (EventItem, SpillItem)] for call in calls]
    assert shares == [[2000, 0], [1500, 500], [500, 500], [0, FEW]]


async def test_a_spill_does_not_overtake_what_its_trigger_fired_before() -> None:
    own = [event(number).model_copy(update={"firings": [2]}) for number in range(2500)]
    outbox = filled([*own, spill(2500)])
    assert [await took(outbox), await took(outbox)] == [own[:2000], [*own[2000:], spill(2500)]]


async def test_a_spill_waits_for_what_is_put_back() -> None:
    outbox = filled([*map(event, range(3)), spill(3)])
    before = await outbox.take(3, 1 << 20)
    outbox.put_back(before)
    assert await took(outbox, most=2) == [event(0), event(1)]
    assert await took(outbox) == [event(2), spill(3)]


async def test_a_receipt_comes_first() -> None:
    outbox = filled([spill(1), event(1)])
    receipt = Receipt(stream="s", lane="l", after=None, last=1, read=1, owed=[1])
    outbox.put_first(Pending(receipt))
    assert await took(outbox) == [receipt, event(1), spill(1)]


async def test_there_is_room_again_once_enough_is_taken() -> None:
    outbox = filled([event(1), event(2), spill(1)], bound=3)
    waiting = asyncio.create_task(outbox.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await took(outbox, most=1)
    await asyncio.wait_for(waiting, 5)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50)), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 100))
def test_all_is_taken_once_in_order_and_within_bounds(sizes: list[tuple[bool, int]], most: int, most_bytes: int) -> None:
    items: list[Item] = [spill(number, size) if spilled else event(number, size) for number, (spilled, size) in enumerate(sizes)]

    async def all_of(outbox: Outbox) -> list[list[Item]]:
        calls = []
        while len(outbox):
            calls.append(await took(outbox, most, most_bytes))
        return calls

    calls = asyncio.run(all_of(filled(items)))
    assert all(1 <= len(call) <= most for call in calls)
    assert all(len(call) == 1 or sum(_size(item) for item in call) <= most_bytes for call in calls)
    for kind in (EventItem, SpillItem):
        assert [item for call in calls for item in call if isinstance(item, kind)] == [item for item in items if isinstance(item, kind)]


@pytest.mark.parametrize("seed", range(20))
async def test_when_a_spill_is_taken_nothing_older_stays(seed: int) -> None:
    """A crash may come after any batch: then a spill is durable only with all that was there before it."""
    chance = random.Random(seed)
    outbox, taken = Outbox(), list[Pending]()
    for number in range(600):
        make = spill if chance.random() < 0.1 else event  # with more of them, spills lag behind by themselves
        outbox.put(Pending(make(number, chance.randint(1, 50))))
        if chance.random() < 0.1:
            taken = await outbox.take(chance.randint(1, 20), chance.randint(1, 400))
            newest = max((pending.order for pending in taken if isinstance(pending.item, SpillItem)), default=0)
            assert all(pending.order > newest for pending in outbox), f"seed {seed}"
        elif chance.random() < 0.05:
            outbox.put_back(taken)
            taken = []


def _size(item: Item) -> int:
    return len(item.payload) if isinstance(item, EventItem) else len(item.raw) if isinstance(item, SpillItem) else 0
