"""What every upstream with acks must do. An adapter for a new broker joins `source_brokers.BROKERS` and passes, or is not done.

A crash is a producer that is closed without having advanced: none may keep anything that it has not made durable by then. Where the
far side outlives a process, `test_source_crash.py` kills real ones.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.triggers.upstream import load_upstream
from support.sources.brokers import BROKERS, Broker
from support.sources.kit import PATIENCE, opened, reading

ACKED = AdvanceOutcome(1, 0)
FAILED = AdvanceOutcome(0, 1)


@pytest.fixture(params=BROKERS, ids=lambda kind: kind.__name__)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    made: Broker = request.param(tmp_path)
    yield made
    made.close()


def messages(count: int, start: int = 0) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(start, start + count)]


async def test_a_lane_comes_in_order_and_its_positions_rise(broker: Broker) -> None:
    broker.put("a", messages(2_000))
    async with reading(broker.upstream().producer()) as held:
        items = await held.take(2_000)
        positions = [held.producer.get_position(payload) or 0 for _, payload in items]
    assert [raw.data for raw, _ in items] == messages(2_000)
    assert positions == sorted(set(positions))
    assert len({raw.lane for raw, _ in items}) == 1


async def test_each_lane_keeps_its_order_whatever_the_others_do(broker: Broker) -> None:
    for lane in "abc":
        broker.put(lane, messages(100))
    async with reading(broker.upstream().producer()) as held:
        items = await held.take(300)
        lanes = {held.producer.get_advance_lane(payload) for _, payload in items}
    assert len(lanes) == 3
    for one in lanes:
        assert [raw.data for raw, payload in items if held.producer.get_advance_lane(payload) == one] == messages(100)


async def test_what_comes_later_is_read_without_asking(broker: Broker) -> None:
    async with reading(broker.upstream().producer()) as held:
        broker.put("a", messages(3))
        assert [raw.data for raw, _ in await held.take(3)] == messages(3)
        broker.put("b", messages(3, start=3))
        assert [raw.data for raw, _ in await held.take(3)] == messages(3, start=3)


async def test_what_was_not_advanced_comes_again_after_a_crash(broker: Broker) -> None:
    broker.put("a", messages(50))
    async with reading(broker.upstream().producer()) as held:
        first = await held.take(50)
    async with reading(broker.upstream().producer()) as held:
        again = await held.take(50)
    assert [(raw.data, raw.lane, raw.position) for raw, _ in again] == [(raw.data, raw.lane, raw.position) for raw, _ in first]


async def test_what_was_advanced_does_not_come_again(broker: Broker) -> None:
    broker.put("a", messages(50))
    async with reading(broker.upstream().producer()) as held:
        await held.advance((await held.take(50))[:30])
    async with reading(broker.upstream().producer()) as held:
        items = await held.take(20)
        assert [raw.data for raw, _ in items] == messages(20, start=30)
        await held.advance(items)
    broker.put("b", messages(1, start=99))
    async with reading(broker.upstream().producer()) as held:
        assert [raw.data for raw, _ in await held.take(1)] == messages(1, start=99)


async def test_lanes_advance_apart(broker: Broker) -> None:
    broker.put("a", messages(10))
    broker.put("b", messages(10))
    async with reading(broker.upstream().producer()) as held:
        items = await held.take(20)
        ahead = items[-1][0].lane
        await held.advance(item for item in items if item[0].lane == ahead)
    async with reading(broker.upstream().producer()) as held:
        again = await held.take(10)
    assert {raw.lane for raw, _ in again} == {raw.lane for raw, _ in items} - {ahead}


async def test_advances_of_many_lanes_at_once_are_all_kept(broker: Broker) -> None:
    for number in range(20):
        broker.put(f"lane{number:02}", messages(5))
    async with reading(broker.upstream().producer()) as held:
        items = await held.take(100)
        lanes: dict[str, list[AdvanceItem]] = {}
        for raw, payload in items:
            lanes.setdefault(raw.lane, []).append(AdvanceItem(payload, ACKED))
        await asyncio.gather(*(held.producer.advance(batch[:3]) for batch in lanes.values()))
    async with reading(broker.upstream().producer()) as held:
        again = await held.take(40)
    assert {raw.lane: [one.data for one, _ in again if one.lane == raw.lane] for raw, _ in again} == dict.fromkeys(
        lanes, messages(2, start=3)
    )


async def test_advancing_twice_changes_nothing(broker: Broker) -> None:
    broker.put("a", messages(10))
    async with reading(broker.upstream().producer()) as held:
        items = await held.take(10)
        await held.advance(items[:6])
        await held.advance(items[:6])
        await held.advance(items[:2])
    async with reading(broker.upstream().producer()) as held:
        assert [raw.data for raw, _ in await held.take(4)] == messages(4, start=6)


async def test_what_failed_comes_again(broker: Broker) -> None:
    broker.put("a", messages(10))
    producer = broker.upstream().producer()
    async with reading(producer) as held:
        items = await held.take(10)
        outcomes = [AdvanceOutcome(0, 1) if raw.data == b'{"n":4}' else ACKED for raw, _ in items]
        await producer.advance([AdvanceItem(payload, outcome) for (_, payload), outcome in zip(items, outcomes, strict=True)][:7])
        await held.advance(items[7:])
    async with reading(broker.upstream().producer()) as held:
        assert [raw.data for raw, _ in await held.take(1)] == messages(1, start=4)


async def test_what_was_rejected_does_not_come_again(broker: Broker) -> None:
    broker.put("a", messages(10))
    producer = broker.upstream().producer()
    async with reading(producer) as held:
        items = await held.take(10)
        await producer.advance([AdvanceItem(payload, AdvanceOutcome(0, 0, rejected=1)) for _, payload in items[:5]])
    async with reading(broker.upstream().producer()) as held:
        assert [raw.data for raw, _ in await held.take(1)] == messages(1, start=5)


async def test_a_stream_that_is_stopped_may_still_be_advanced(broker: Broker) -> None:
    broker.put("a", messages(5))
    producer = broker.upstream().producer()
    async with opened(producer) as stream:
        items = [await anext(stream) for _ in range(5)]
    await producer.advance([AdvanceItem(payload, ACKED) for _, payload in items[:3]])
    await producer.aclose()
    async with reading(broker.upstream().producer()) as held:
        assert [raw.data for raw, _ in await held.take(2)] == messages(2, start=3)


async def test_closing_leaves_no_task_thread_or_descriptor_and_lets_the_next_one_in(broker: Broker) -> None:
    async def visit() -> None:
        async with reading(broker.upstream().producer()) as held:
            broker.put("a", messages(1))
            await held.advance(await held.take(1))

    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace")]

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = asyncio.all_tasks()
    await visit()
    open_before = descriptors()
    for _ in range(10):
        await visit()
        assert asyncio.all_tasks() == before
    for thread in threading.enumerate():
        if thread.name.startswith("headrace"):
            await asyncio.to_thread(thread.join, PATIENCE)
    assert ours() == []
    # The kernel's watch on a folder is given back a little later, by a thread of watchfiles; one that stayed for each visit would be ten.
    async with asyncio.timeout(PATIENCE):
        while descriptors() >= open_before + 10:
            await asyncio.sleep(0.05)


async def test_closing_what_was_never_opened_is_quiet(broker: Broker) -> None:
    await broker.upstream().producer().aclose()


async def test_a_slow_consumer_gets_everything_in_order(broker: Broker) -> None:
    broker.put("a", messages(500))
    producer = broker.upstream().producer()
    async with opened(producer) as stream:
        seen = []
        for number in range(700):
            raw, payload = await anext(stream)
            seen.append(raw.data)
            await producer.advance([AdvanceItem(payload, ACKED)])
            if number == 300:
                broker.put("a", messages(200, start=500))
    await producer.aclose()
    assert seen == messages(700)


async def test_a_fast_sender_and_a_reader_that_stops_now_and_then_lose_nothing(broker: Broker) -> None:
    """Reconnect: 12 readers one after the other, each advances less than it reads."""
    seen: list[bytes] = []
    for visit in range(12):
        broker.put("a", messages(100, start=100 * visit))
        async with reading(broker.upstream().producer()) as held:
            items = await held.take(100)
            await held.advance(items[:70])
            seen += [raw.data for raw, _ in items[:70]]
    async with reading(broker.upstream().producer()) as held:
        seen += [raw.data for raw, _ in await held.take(12 * 30)]
    assert seen == messages(1_200)


async def test_what_nobody_wanted_and_what_was_spilled_is_advanced_as_well(broker: Broker) -> None:
    broker.put("a", messages(5))
    outcomes = [AdvanceOutcome(0, 0), AdvanceOutcome(0, 0, spilled=1), AdvanceOutcome(1, 0, rejected=1, spilled=1)]
    producer = broker.upstream().producer()
    async with reading(producer) as held:
        items = await held.take(5)
        await producer.advance([AdvanceItem(payload, outcome) for (_, payload), outcome in zip(items[:3], outcomes, strict=True)])
    async with reading(broker.upstream().producer()) as held:
        assert [raw.data for raw, _ in await held.take(2)] == messages(2, start=3)


async def test_several_that_failed_all_come_again_and_in_order(broker: Broker) -> None:
    broker.put("a", messages(12))
    producer = broker.upstream().producer()
    async with reading(producer) as held:
        items = await held.take(12)
        for part in (items[:6], items[6:]):
            outcomes = [FAILED if raw.value["n"] in (2, 3, 8) else ACKED for raw, _ in part]
            await producer.advance([AdvanceItem(payload, outcome) for (_, payload), outcome in zip(part, outcomes, strict=True)])
    broker.put("a", messages(1, start=99))
    again: list[int] = []
    async with reading(broker.upstream().producer()) as held:
        while 99 not in again:
            again += [raw.value["n"] for raw, _ in await held.take(1)]
    assert again == sorted(again)
    assert {2, 3, 8} <= set(again)
    assert again[0] == 2


async def test_it_says_how_far_a_lane_goes_and_how_far_it_is_done(broker: Broker) -> None:
    broker.put("a", messages(10))
    async with reading(broker.upstream().producer()) as held:
        producer = held.producer
        items = await held.take(10)
        lane = producer.get_advance_lane(items[0][1])
        positions = [producer.get_position(payload) for _, payload in items]
        assert (producer.get_committed(lane), producer.get_lane_end(lane)) == (None, positions[9])
        await held.advance(items[:4])
        assert (producer.get_committed(lane), producer.get_lane_end(lane)) == (positions[3], positions[9])
        await producer.advance([AdvanceItem(items[4][1], FAILED), AdvanceItem(items[5][1], ACKED)])
        assert producer.get_committed(lane) == positions[3]
    async with reading(broker.upstream().producer()) as held:
        producer = held.producer
        again = await held.take(1)
        assert (producer.get_position(again[0][1]), producer.get_committed(lane)) == (positions[4], positions[3])


async def test_a_lane_that_is_caught_up_has_no_lag(broker: Broker) -> None:
    broker.put("a", messages(10))
    broker.put("b", messages(1))
    async with reading(broker.upstream().producer()) as held:
        producer = held.producer
        items = await held.take(11)
        await held.advance(items)
        for lane in {producer.get_advance_lane(payload) for _, payload in items}:
            assert producer.get_committed(lane) == producer.get_lane_end(lane) is not None


async def test_an_advance_that_is_cancelled_may_be_done_again(broker: Broker) -> None:
    broker.put("a", messages(10))
    producer = broker.upstream().producer()
    async with reading(producer) as held:
        items = await held.take(10)
        batch = [AdvanceItem(payload, ACKED) for _, payload in items[:6]]
        for steps in range(6):
            advance = asyncio.ensure_future(producer.advance(batch))
            for _ in range(steps):
                await asyncio.sleep(0)
            advance.cancel()
            await asyncio.gather(advance, return_exceptions=True)
        await producer.advance(batch)
    async with reading(broker.upstream().producer()) as held:
        assert [raw.data for raw, _ in await held.take(4)] == messages(4, start=6)


async def test_a_reader_that_is_cancelled_while_it_waits_ends_at_once(broker: Broker) -> None:
    producer = broker.upstream().producer()
    async with opened(producer) as stream:
        broker.put("a", messages(1))
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await producer.aclose()
    async with reading(broker.upstream().producer()) as held:
        await held.take(1)


async def test_a_reader_that_is_cancelled_while_it_opens_keeps_nobody_out(broker: Broker) -> None:
    broker.put("a", messages(1))
    for steps in range(8):
        async with reading(broker.upstream().producer()):
            for _ in range(steps):
                await asyncio.sleep(0)
    async with reading(broker.upstream().producer()) as held:
        await held.take(1)


async def test_messages_come_byte_for_byte(broker: Broker) -> None:
    texts = ['{"a": [1, 2.50, null], "ü": "\u00e4 😀"}'.encode(), b'"text"', b"[]", b'{"long":"' + b"x" * 900_000 + b'"}', b"0"]
    broker.put("a", texts)
    async with reading(broker.upstream().producer()) as held:
        assert [raw.data for raw, _ in await held.take(5)] == texts


def test_it_is_written_down_and_made_again(broker: Broker) -> None:
    upstream = broker.upstream()
    again = load_upstream(*upstream.serialize())
    assert again.serialize() == upstream.serialize()
    assert (again.stream_key(), again.source, again.event_type) == (upstream.stream_key(), upstream.source, upstream.event_type)


async def test_a_hundred_thousand_messages_come_once_each_and_are_advanced(broker: Broker) -> None:
    """Four lanes, sent while they are read; every lane is advanced in batches, several lanes at once."""
    total, lanes = 100_000, "abcd"
    producer = broker.upstream().producer()
    expected = [messages(2_500, start=start) for start in range(0, total, 2_500)]
    arrived: dict[Any, list[bytes]] = defaultdict(list)
    ready: dict[Any, list[AdvanceItem]] = defaultdict(list)

    async def send() -> None:
        for number, part in enumerate(expected):
            await asyncio.to_thread(broker.put, lanes[number % 4], part)

    async def advance(lane: Any) -> None:
        batch, ready[lane] = ready[lane], []
        for start in range(0, len(batch), 500):
            await producer.advance(batch[start : start + 500])

    async with opened(producer) as stream, asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        for count in range(1, total + 1):
            raw, payload = await anext(stream)
            lane = producer.get_advance_lane(payload)
            arrived[lane].append(raw.data)
            ready[lane].append(AdvanceItem(payload, ACKED))
            if count % 10_000 == 0:
                await asyncio.gather(*map(advance, list(ready)))
    await producer.aclose()
    assert sorted(arrived.values()) == sorted([message for part in expected[first::4] for message in part] for first in range(4))
    broker.put("e", messages(1, start=total))
    async with reading(broker.upstream().producer()) as held:
        assert [raw.data for raw, _ in await held.take(1)] == messages(1, start=total)
