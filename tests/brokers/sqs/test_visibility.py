"""Messages that a reader holds: for longer than their visibility timeout, beside a second reader, and at its end."""

from __future__ import annotations

import asyncio

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.sources.leases import receiver
from headrace.testing.contract.reading import opened, reading
from support.sources.reading import numbers, until_in_thread
from support.sources.sqs import VISIBILITY_SECONDS, MakeQueue, SqsQueue

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("sqs")]

ACKED = AdvanceOutcome(1, 0)
FAILED = AdvanceOutcome(0, 1)


@pytest.mark.parametrize("is_fifo", [False, True])
async def test_held_messages_stay_invisible_for_longer_than_their_timeout(make_queue: MakeQueue, is_fifo: bool) -> None:
    queue = make_queue(fifo=is_fifo)
    queue.send(numbers(0, 10))
    async with reading(queue.producer()) as stream:
        items = await stream.take(10)
        # Another program, which waits for longer than twice the timeout.
        assert await asyncio.to_thread(queue.server.receive, queue.name, WaitTimeSeconds=2 * VISIBILITY_SECONDS + 1) == []
        await stream.advance(items)
        assert queue.count() == (0, 0)


async def test_a_closed_reader_holds_nothing(queue: SqsQueue) -> None:
    queue.send(numbers(0, 500))
    async with reading(queue.producer(visibility=43_200)) as stream:
        await stream.advance((await stream.take(50))[:20])
    assert queue.count() == (480, 0)


async def test_two_readers_share_the_messages_and_lose_none(queue: SqsQueue) -> None:
    queue.send(numbers(0, 400))
    producer = queue.producer()
    async with opened(producer) as first:  # which takes no more than 50, and leaves the rest of the queue to the second
        items = [await anext(first) for _ in range(50)]
        async with reading(queue.producer()) as second:
            items += await second.take(50)
            assert len({raw.id for raw, _ in items}) == 100
            await producer.advance([AdvanceItem(part, ACKED) for _, part in items[:50]])
            await second.advance(items[50:])
    await producer.aclose()
    async with reading(queue.producer()) as stream:
        rest = await stream.take(300)
    assert sorted(raw.value["n"] for raw, _ in [*items, *rest]) == list(range(400))


async def test_a_message_that_became_visible_is_not_delivered_twice_in_one_opening(queue: SqsQueue) -> None:
    queue.send(numbers(0, 1))
    async with reading(queue.producer()) as stream:
        ((_, part),) = await stream.take(1)
        old = part.lease.receipt
        queue.server.make_visible(queue.name, old)
        await until_in_thread(lambda: part.lease.receipt != old)
        queue.send(numbers(1, 2))
        ((raw, other),) = await stream.take(1)
        assert raw.value == {"n": 1}
        await stream.producer.advance([AdvanceItem(part, ACKED), AdvanceItem(other, ACKED)])
        assert queue.count() == (0, 0)


async def test_a_message_that_another_reader_took_is_left_to_it(queue: SqsQueue) -> None:
    queue.send(numbers(0, 10))
    producer = queue.producer()
    async with opened(producer) as stream:
        items = [await anext(stream) for _ in range(10)]
    assert producer._opened is not None
    await producer._opened.receiver.aclose()
    queue.server.make_visible(queue.name, items[4][1].lease.receipt)
    (taken,) = queue.server.receive(queue.name, VisibilityTimeout=60)
    assert taken["MessageId"] == items[4][0].id
    await producer.advance([AdvanceItem(part, ACKED) for _, part in items])
    assert queue.count() == (0, 1)
    await producer.aclose()
    assert queue.count() == (0, 1)


async def test_an_answered_message_that_was_not_deleted_is_deleted_when_it_comes_again(fifo: SqsQueue) -> None:
    fifo.send(numbers(0, 1))
    producer = fifo.producer()
    async with reading(producer) as stream:
        ((_, part),) = await stream.take(1)
        assert producer._opened is not None
        producer._opened.leases.finish(part.lease)  # as after a deletion with a receipt that is too old
        await until_in_thread(lambda: fifo.count() == (0, 0))
        fifo.send(numbers(1, 2))
        ((raw, _),) = await stream.take(1)
        assert raw.value == {"n": 1}


async def test_a_failed_message_comes_again_in_the_same_opening(queue: SqsQueue) -> None:
    queue.send(numbers(0, 3))
    async with reading(queue.producer()) as stream:
        items = await stream.take(3)
        outcomes = [FAILED if raw.value["n"] == 1 else ACKED for raw, _ in items]
        await stream.producer.advance([AdvanceItem(part, outcome) for (_, part), outcome in zip(items, outcomes, strict=True)])
        assert queue.count() == (0, 1)
        ((raw, part),) = await stream.take(1)
        failed = next(raw for raw, _ in items if raw.value["n"] == 1)
        assert (raw.id, raw.value, raw.delivery) == (failed.id, {"n": 1}, 2)
        await stream.producer.advance([AdvanceItem(part, ACKED)])
        assert queue.count() == (0, 0)


async def test_after_a_failed_message_its_group_comes_again_in_order_and_no_other(fifo: SqsQueue) -> None:
    fifo.send(numbers(0, 10), group="a")
    fifo.send(numbers(10, 20), group="b")
    async with reading(fifo.producer()) as stream:
        items = await stream.take(20)
        for group in "ab":
            batch = [AdvanceItem(part, FAILED if raw.value["n"] == 4 else ACKED) for raw, part in items if raw.key == group]
            await stream.producer.advance(batch)
        again = await stream.take(6)
        assert [raw.value["n"] for raw, _ in again] == list(range(4, 10))
        await stream.advance(again)
        assert fifo.count() == (0, 0)


async def test_groups_may_share_a_fixed_number_of_lanes(fifo: SqsQueue) -> None:
    for group in range(30):
        fifo.send(numbers(0, 2), group=f"group-{group}")
    async with reading(fifo.producer(lanes=4)) as stream:
        items = await stream.take(60)
        assert {raw.lane for raw, _ in items} == {f"{fifo.name}/{number}" for number in range(4)}
        assert all([raw.value["n"] for raw, _ in items if raw.key == f"group-{group}"] == [0, 1] for group in range(30))
        await stream.advance(items)
        assert fifo.count() == (0, 0)


async def test_a_reader_holds_no_more_than_its_stream_takes_and_a_buffer(queue: SqsQueue) -> None:
    queue.send(numbers(0, 1_000))
    most = receiver.MAX_BUFFERED_RECORDS + 10 * receiver.MAX_POLLS
    producer = queue.producer()
    async with opened(producer) as stream:
        await anext(stream)
        await until_in_thread(lambda: queue.count()[1] >= receiver.MAX_BUFFERED_RECORDS)
        queue.send(["1"])
        later = queue.server.receive(queue.name, WaitTimeSeconds=2)  # another program still gets messages after 2 s
        assert later
        assert queue.count()[1] <= most + len(later)
        for _ in range(500):
            await anext(stream)
        await until_in_thread(lambda: queue.count()[1] >= 500 + receiver.MAX_BUFFERED_RECORDS)
    await producer.aclose()
