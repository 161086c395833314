"""Messages that a reader holds: for longer than their locks, beside a second reader, and at its end."""

from __future__ import annotations

import asyncio

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.testing.contract.reading import opened, reading
from support.sources.reading import numbers, until_in_thread
from support.sources.service_bus import LOCK_SECONDS, MakeQueue, ServiceBusQueue

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("service-bus")]

ACKED = AdvanceOutcome(1, 0)
FAILED = AdvanceOutcome(0, 1)


@pytest.mark.parametrize("sessions", [None, 2])
async def test_held_messages_stay_locked_for_longer_than_their_locks(make_queue: MakeQueue, sessions: int | None) -> None:
    queue = make_queue(sessions=sessions)
    queue.send(numbers(0, 10))
    async with reading(queue.producer()) as stream:
        items = await stream.take(10)
        await asyncio.sleep(2 * LOCK_SECONDS + 1)
        assert await asyncio.to_thread(queue.count) == (0, 10)
        await stream.advance(items)
        assert {one[0].delivery for one in items} == {1}
        assert await asyncio.to_thread(queue.count) == (0, 0)


@pytest.mark.parametrize("sessions", [None, 2])
async def test_a_closed_reader_holds_nothing(make_queue: MakeQueue, sessions: int | None) -> None:
    queue = make_queue(sessions=sessions, lock_seconds=300)
    queue.send(numbers(0, 500))
    async with reading(queue.producer(lock=300)) as stream:
        await stream.advance((await stream.take(50))[:20])
    await until_in_thread(lambda: queue.count() == (480, 0))  # the library does not wait until the service has read what it sends
    assert {one["delivery_count"] for one in queue.server.messages(queue.path)} == {0}


async def test_two_readers_share_the_messages_and_lose_none(queue: ServiceBusQueue) -> None:
    queue.send(numbers(0, 1_000))
    async with reading(queue.producer()) as first, reading(queue.producer()) as second:
        items = await first.take(100)
        others = await second.take(100)
        await first.advance(items)
        await second.advance(others)
    async with reading(queue.producer()) as stream:
        rest = await stream.take(800)
    assert sorted(raw.value["n"] for raw, _ in [*items, *others, *rest]) == list(range(1_000))


async def test_messages_whose_locks_have_ended_are_not_delivered_twice_in_one_opening(queue: ServiceBusQueue) -> None:
    queue.send(numbers(0, 10))
    async with reading(queue.producer(lock=300)) as stream:  # longer than the locks last
        items = await stream.take(10)
        await until_in_thread(lambda: all(part.lease.deliveries > 1 for _, part in items))
        await stream.advance(items)
        assert queue.count() == (0, 0)
        queue.send(numbers(10, 11))
        ((raw, _),) = await stream.take(1)
        assert raw.value == {"n": 10}


async def test_of_one_completion_those_with_lost_locks_stay_in_the_queue(queue: ServiceBusQueue) -> None:
    """Their locks have ended, and the service has sent them to the connection again, which nothing reads any more."""
    queue.send(numbers(0, 10))
    producer = queue.producer(lock=300)
    async with opened(producer) as stream:
        items = [await anext(stream) for _ in range(10)]
    assert producer._opened is not None
    await producer._opened.receiver.aclose()
    await asyncio.sleep(LOCK_SECONDS / 2)
    assert await producer._opened.service.set_lease([part.lease for _, part in items[::2]], 300) == {}
    await until_in_thread(lambda: queue.server.request("GET", queue.path)["deliveries"] == 15)
    await producer.advance([AdvanceItem(part, ACKED) for _, part in items])
    assert queue.count() == (0, 5)
    await producer.aclose()
    async with reading(queue.producer()) as next_reader:
        rest = await next_reader.take(5)
        assert {raw.id for raw, _ in rest} == {raw.id for raw, _ in items[1::2]}


async def test_a_failed_message_comes_again_in_the_same_opening(queue: ServiceBusQueue) -> None:
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


async def test_after_a_failed_message_its_session_comes_again_in_order_and_no_other(sessions: ServiceBusQueue) -> None:
    sessions.send(numbers(0, 10), session="a")
    sessions.send(numbers(10, 20), session="b")
    async with reading(sessions.producer()) as stream:
        items = await stream.take(20)
        batch = [AdvanceItem(part, FAILED if raw.value["n"] == 4 else ACKED) for raw, part in items if raw.lane == "a"]
        await stream.producer.advance(batch)
        sessions.send(numbers(20, 30), session="a")  # the service would deliver them before those that failed
        again = await stream.take(16)
        assert [raw.value["n"] for raw, _ in again] == [*range(4, 10), *range(20, 30)]
        await stream.advance([*again, *(item for item in items if item[0].lane == "b")])
        assert sessions.count() == (0, 0)


async def test_more_sessions_than_are_read_at_once_are_read_one_after_the_other(make_queue: MakeQueue) -> None:
    queue = make_queue(sessions=2)
    for number in range(6):
        queue.send(numbers(0, 5), session=f"s{number}")
    seen: dict[str, list[int]] = {}
    async with reading(queue.producer()) as stream:
        for _ in range(6):
            items = await stream.take(5)
            for raw, _ in items:
                seen.setdefault(raw.lane, []).append(raw.value["n"])
            await stream.advance(items)
    assert seen == {f"s{number}": [0, 1, 2, 3, 4] for number in range(6)}
    assert queue.count() == (0, 0)


async def test_two_readers_never_have_the_same_session(make_queue: MakeQueue) -> None:
    queue = make_queue(sessions=2)
    for number in range(4):
        queue.send(numbers(0, 20), session=f"s{number}")
    async with reading(queue.producer()) as first, reading(queue.producer()) as second:
        one, other = await first.take(40), await second.take(40)
        assert {raw.lane for raw, _ in one}.isdisjoint(raw.lane for raw, _ in other)
        await first.advance(one)
        await second.advance(other)
    assert queue.count() == (0, 0)


async def test_a_session_whose_connection_is_lost_comes_again_and_nothing_is_delivered_twice(sessions: ServiceBusQueue) -> None:
    sessions.send(numbers(0, 20))
    async with reading(sessions.producer()) as stream:
        items = await stream.take(20)
        await asyncio.to_thread(sessions.server.request, "POST", "disconnect")
        await until_in_thread(lambda: all(part.lease.deliveries > 1 for _, part in items))
        sessions.send(numbers(20, 30))
        later = await stream.take(10)
        assert [raw.value["n"] for raw, _ in later] == list(range(20, 30))
        await stream.advance([*items, *later])
        await until_in_thread(lambda: sessions.count() == (0, 0))


async def test_messages_sent_ahead_to_a_full_stream_are_given_back_before_their_locks_end(queue: ServiceBusQueue) -> None:
    """The end of a lock counts as a delivery, and the service moves a message with too many to its dead letters."""
    queue.send(numbers(0, 1_000))
    producer = queue.producer()
    async with opened(producer) as stream:
        first = await anext(stream)
        await asyncio.sleep(2 * LOCK_SECONDS + 1)
        stored = await asyncio.to_thread(queue.server.messages, queue.path)
        assert {one["delivery_count"] for one in stored} == {0}
        assert 0 < sum(one["locked"] for one in stored) < 1_000
        rest = [await anext(stream) for _ in range(999)]
        assert sorted(raw.value["n"] for raw, _ in [first, *rest]) == list(range(1_000))
    await producer.aclose()


async def test_a_session_that_is_given_back_counts_as_no_delivery(sessions: ServiceBusQueue) -> None:
    sessions.send(numbers(0, 5))
    for _ in range(2):
        async with reading(sessions.producer()) as stream:
            assert {raw.delivery for raw, _ in await stream.take(5)} == {1}


async def test_a_link_that_the_service_closes_because_it_is_idle_is_no_outage(queue: ServiceBusQueue) -> None:
    async with reading(queue.producer()) as stream:
        queue.send(numbers(0, 1))
        items = await stream.take(1)
        closed = {"condition": "amqp:link:detach-forced", "text": "The link is closed because it was idle for 10 minutes."}
        assert await asyncio.to_thread(queue.server.request, "POST", f"{queue.path}/detach", closed) == {"links": 1}
        queue.send(numbers(1, 5))
        items += await stream.take(4)
        assert stream.producer.get_errors() == {}
        await stream.advance(items)
        assert queue.count() == (0, 0)
