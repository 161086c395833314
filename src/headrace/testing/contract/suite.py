"""The contract that each upstream fulfils, as a suite of tests.

A crash is a producer that is closed without having advanced. It must not have made anything durable that was not advanced.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.testing.contract.broker import Broker
from headrace.testing.contract.cancellation import CancellationContract
from headrace.testing.contract.case import contract_case
from headrace.testing.contract.crashes import CrashContract
from headrace.testing.contract.reading import READ_TIMEOUT_SECONDS, opened, others, reading, texts
from headrace.testing.pytest_import import pytest
from headrace.triggers.upstream import load_upstream

ACKED: Final = AdvanceOutcome(1, 0)
FAILED: Final = AdvanceOutcome(0, 1)


class SourceContract(CancellationContract, CrashContract, ABC):
    """The tests that an upstream passes. Subclass it in a test module as `Test…` and write `make_broker`.

    Its tests need pytest and no plugin. They drive a `Broker`, whose flags say which tests apply.
    """

    many: ClassVar[int] = 100_000
    """Messages of the largest test, a multiple of 40. Lower it for a slow broker."""

    one_by_one: ClassVar[int] = 700
    """Messages that one test advances one after the other, a multiple of 7. Lower it for a broker that confirms slowly."""

    @abstractmethod
    def make_broker(self, folder: Path) -> Broker:
        """Return a new, empty broker. `folder` is a temporary folder for this test."""

    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[Broker]:
        """Make the broker of one test, and close it."""
        broker = self.make_broker(tmp_path)
        yield broker
        broker.close()

    @contract_case()
    async def test_a_lane_is_in_order_and_its_positions_rise(self, broker: Broker) -> None:
        count = broker.bounded(2_000)
        broker.send("a", messages(count))
        async with reading(broker.upstream().producer()) as stream:
            items = await stream.take(count)
            positions = [stream.producer.get_position(payload) for _, payload in items]
            lanes = {stream.producer.get_advance_lane(payload) for _, payload in items}
        assert texts(broker, items) == messages(count)
        assert len(lanes) == 1
        if broker.positions:
            numbers = [position for position in positions if position is not None]
            assert numbers == sorted(set(numbers))
            assert len(numbers) == count

    @contract_case("lanes")
    async def test_each_lane_keeps_its_own_order(self, broker: Broker) -> None:
        count = broker.bounded(100)
        for lane in "abc":
            broker.send(lane, messages(count))
        async with reading(broker.upstream().producer()) as stream:
            items = await stream.take(3 * count)
            lanes = {stream.producer.get_advance_lane(payload) for _, payload in items}
        assert len(lanes) == 3
        for one in lanes:
            assert [raw.data for raw, payload in items if stream.producer.get_advance_lane(payload) == one] == messages(count)

    @contract_case()
    async def test_messages_sent_later_are_read_by_the_same_producer(self, broker: Broker) -> None:
        async with reading(broker.upstream().producer()) as stream:
            broker.send("a", messages(3))
            assert texts(broker, await stream.take_advancing(broker, 3)) == messages(3)
            broker.send("b", messages(3, start=3))
            assert texts(broker, await stream.take_advancing(broker, 3)) == messages(3, start=3)

    @contract_case("redelivery")
    async def test_messages_not_advanced_are_redelivered_after_a_crash(self, broker: Broker) -> None:
        count = broker.bounded(50)
        broker.send("a", messages(count))
        async with reading(broker.upstream().producer()) as stream:
            first = await stream.take(count)
        async with reading(broker.upstream().producer()) as stream:
            again = await stream.take(count)
        assert texts(broker, again) == texts(broker, first)
        assert {raw.data: raw.lane for raw, _ in again} == {raw.data: raw.lane for raw, _ in first}
        if broker.positions:
            assert [raw.position for raw, _ in again] == [raw.position for raw, _ in first]

    @contract_case("redelivery")
    async def test_advanced_messages_are_not_redelivered(self, broker: Broker) -> None:
        sent = messages(broker.bounded(50))
        broker.send("a", sent)
        async with reading(broker.upstream().producer()) as stream:
            first = (await stream.take(len(sent)))[: len(sent) * 3 // 5]
            await stream.advance(first)
        async with reading(broker.upstream().producer()) as stream:
            items = await stream.take(len(sent) - len(first))
            assert texts(broker, items) == others(sent, first)
            await stream.advance(items)
        broker.send("b", messages(1, start=99))
        async with reading(broker.upstream().producer()) as stream:
            assert [raw.data for raw, _ in await stream.take(1)] == messages(1, start=99)

    @contract_case("lanes", "redelivery")
    async def test_lanes_advance_independently(self, broker: Broker) -> None:
        broker.send("a", messages(10))
        broker.send("b", messages(10))
        async with reading(broker.upstream().producer()) as stream:
            items = await stream.take(20)
            ahead = items[-1][0].lane
            await stream.advance(item for item in items if item[0].lane == ahead)
        async with reading(broker.upstream().producer()) as stream:
            again = await stream.take(10)
        assert {raw.lane for raw, _ in again} == {raw.lane for raw, _ in items} - {ahead}

    @contract_case("lanes", "redelivery")
    async def test_concurrent_advances_of_many_lanes_are_all_durable(self, broker: Broker) -> None:
        for number in range(20):
            broker.send(f"lane{number:02}", messages(5))
        async with reading(broker.upstream().producer()) as stream:
            items = await stream.take(100)
            lanes: dict[str, list[AdvanceItem]] = {}
            for raw, payload in items:
                lanes.setdefault(raw.lane, []).append(AdvanceItem(payload, ACKED))
            await asyncio.gather(*(stream.producer.advance(batch[:3]) for batch in lanes.values()))
        async with reading(broker.upstream().producer()) as stream:
            again = await stream.take(40)
        assert {raw.lane: [one.data for one, _ in again if one.lane == raw.lane] for raw, _ in again} == dict.fromkeys(
            lanes, messages(2, start=3)
        )

    @contract_case("redelivery")
    async def test_a_repeated_advance_changes_nothing(self, broker: Broker) -> None:
        broker.send("a", messages(10))
        async with reading(broker.upstream().producer()) as stream:
            items = await stream.take(10)
            await stream.advance(items[:6])
            await stream.advance(items[:6])
            await stream.advance(items[:2])
        async with reading(broker.upstream().producer()) as stream:
            assert texts(broker, await stream.take(4)) == others(messages(10), items[:6])

    @contract_case("redelivery")
    async def test_a_failed_message_is_redelivered(self, broker: Broker) -> None:
        broker.send("a", messages(10))
        producer = broker.upstream().producer()
        async with reading(producer) as stream:
            items = await stream.take(10)
            outcomes = [FAILED if number == 4 else ACKED for number in range(10)]
            await producer.advance([AdvanceItem(payload, outcome) for (_, payload), outcome in zip(items, outcomes, strict=True)][:7])
            await stream.advance(items[7:])
        async with reading(broker.upstream().producer()) as stream:
            assert (await stream.take(1))[0][0].data == items[4][0].data

    @contract_case("redelivery")
    async def test_rejected_messages_are_not_redelivered(self, broker: Broker) -> None:
        broker.send("a", messages(10))
        producer = broker.upstream().producer()
        async with reading(producer) as stream:
            items = await stream.take(10)
            await producer.advance([AdvanceItem(payload, AdvanceOutcome(0, 0, rejected=1)) for _, payload in items[:5]])
        async with reading(broker.upstream().producer()) as stream:
            assert texts(broker, await stream.take(5)) == others(messages(10), items[:5])

    @contract_case("redelivery")
    async def test_a_closed_stream_can_still_be_advanced(self, broker: Broker) -> None:
        broker.send("a", messages(5))
        producer = broker.upstream().producer()
        async with opened(producer) as stream:
            items = [await anext(stream) for _ in range(5)]
        await producer.advance([AdvanceItem(payload, ACKED) for _, payload in items[:3]])
        await producer.aclose()
        async with reading(broker.upstream().producer()) as stream:
            assert texts(broker, await stream.take(2)) == others(messages(5), items[:3])

    @contract_case()
    async def test_a_closed_producer_leaves_no_task_thread_or_descriptor_and_the_next_one_can_open(self, broker: Broker) -> None:
        async def visit() -> None:
            async with reading(broker.upstream().producer()) as stream:
                broker.send("a", messages(1))
                await stream.advance(await stream.take(1))

        before = asyncio.all_tasks()
        await visit()
        threads_before, open_before = len(_threads()), _descriptors()
        for _ in range(10):
            await visit()
            assert asyncio.all_tasks() == before
        for thread in _threads():
            if thread.name.startswith("headrace"):
                await asyncio.to_thread(thread.join, READ_TIMEOUT_SECONDS)
        assert not [thread for thread in _threads() if thread.name.startswith("headrace")]
        # A client library may release its own a little later. If one stayed for each visit, there would be ten.
        async with asyncio.timeout(READ_TIMEOUT_SECONDS):
            while _descriptors() >= open_before + 10 or len(_threads()) >= threads_before + 10:
                await asyncio.sleep(0.05)

    @contract_case()
    async def test_a_producer_that_was_never_opened_can_be_closed(self, broker: Broker) -> None:
        await broker.upstream().producer().aclose()

    @contract_case()
    async def test_a_slow_consumer_gets_all_messages_in_order(self, broker: Broker) -> None:
        total, first = self.one_by_one, self.one_by_one * 5 // 7
        broker.send("a", messages(first))
        producer = broker.upstream().producer()
        async with opened(producer) as stream:
            seen = []
            for number in range(total):
                seen.append(await anext(stream))
                await producer.advance([AdvanceItem(seen[-1][1], ACKED)])
                if number == total * 3 // 7:
                    broker.send("a", messages(total - first, start=first))
        await producer.aclose()
        assert texts(broker, seen) == messages(total)

    @contract_case("redelivery")
    async def test_readers_that_stop_while_messages_arrive_lose_nothing(self, broker: Broker) -> None:
        """Reconnect: 12 readers one after the other, each advances less than it reads."""
        count = broker.bounded(100)
        seen: list[tuple[Any, Any]] = []
        for visit in range(12):
            broker.send("a", messages(count, start=count * visit))
            async with reading(broker.upstream().producer()) as stream:
                items = (await stream.take(count))[: count * 7 // 10]
                await stream.advance(items)
                seen += items
        async with reading(broker.upstream().producer()) as stream:
            seen += await stream.take_advancing(broker, 12 * count - len(seen))
        assert texts(broker, seen) == messages(12 * count)

    @contract_case("redelivery")
    async def test_filtered_and_spilled_messages_are_advanced(self, broker: Broker) -> None:
        broker.send("a", messages(5))
        outcomes = [AdvanceOutcome(0, 0), AdvanceOutcome(0, 0, spilled=1), AdvanceOutcome(1, 0, rejected=1, spilled=1)]
        producer = broker.upstream().producer()
        async with reading(producer) as stream:
            items = await stream.take(5)
            await producer.advance([AdvanceItem(payload, outcome) for (_, payload), outcome in zip(items[:3], outcomes, strict=True)])
        async with reading(broker.upstream().producer()) as stream:
            assert texts(broker, await stream.take(2)) == others(messages(5), items[:3])

    @contract_case("ordered", "redelivery")
    async def test_all_failed_messages_are_redelivered_in_order(self, broker: Broker) -> None:
        broker.send("a", messages(10))
        producer = broker.upstream().producer()
        async with reading(producer) as stream:
            items = await stream.take(10)
            for part in (items[:5], items[5:]):
                outcomes = [FAILED if raw.value["n"] in (2, 3, 8) else ACKED for raw, _ in part]
                await producer.advance([AdvanceItem(payload, outcome) for (_, payload), outcome in zip(part, outcomes, strict=True)])
        broker.send("a", messages(1, start=99))
        again: list[int] = []
        async with reading(broker.upstream().producer()) as stream:
            while 99 not in again:
                again += [raw.value["n"] for raw, _ in await stream.take(1)]
        assert again == sorted(again)
        assert {2, 3, 8} <= set(again)
        assert again[0] == 2

    @contract_case("positions", "progress", "redelivery")
    async def test_a_producer_reports_the_end_and_the_committed_position_of_a_lane(self, broker: Broker) -> None:
        broker.send("a", messages(10))
        async with reading(broker.upstream().producer()) as stream:
            producer = stream.producer
            items = await stream.take(10)
            lane = producer.get_advance_lane(items[0][1])
            positions = [producer.get_position(payload) for _, payload in items]
            assert (producer.get_committed(lane), producer.get_lane_end(lane)) == (None, positions[9])
            await stream.advance(items[:4])
            assert (producer.get_committed(lane), producer.get_lane_end(lane)) == (positions[3], positions[9])
            await producer.advance([AdvanceItem(items[4][1], FAILED), AdvanceItem(items[5][1], ACKED)])
            assert producer.get_committed(lane) == positions[3]
        async with reading(broker.upstream().producer()) as stream:
            producer = stream.producer
            again = await stream.take(1)
            assert (producer.get_position(again[0][1]), producer.get_committed(lane)) == (positions[4], positions[3])

    @contract_case("progress")
    async def test_a_lane_without_messages_left_has_no_lag(self, broker: Broker) -> None:
        broker.send("a", messages(10))
        broker.send("b", messages(1))
        async with reading(broker.upstream().producer()) as stream:
            producer = stream.producer
            items = await stream.take(11)
            await stream.advance(items)
            for lane in {producer.get_advance_lane(payload) for _, payload in items}:
                assert producer.get_committed(lane) == producer.get_lane_end(lane) is not None

    @contract_case("counted")
    async def test_a_producer_counts_the_messages_that_it_has_not_yielded(self, broker: Broker) -> None:
        count = broker.bounded(50)
        producer = broker.upstream().producer()
        broker.send("a", messages(count))
        read: list[tuple[Any, Any]] = []
        try:
            async with aclosing(cast(AsyncGenerator[tuple[Any, Any], None], producer.open_stream())) as stream:
                for left in (count - 1, count - 2):
                    read.append(await anext(stream))
                    async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                        while producer.get_unread() != left:
                            await asyncio.sleep(0.01)
                while len(read) < count:
                    read.append(await anext(stream))
                async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                    while producer.get_unread() != 0:
                        await asyncio.sleep(0.01)
        finally:
            await producer.aclose()

    @contract_case()
    async def test_messages_arrive_byte_for_byte(self, broker: Broker) -> None:
        sent = ['{"a": [1, 2.50, null], "ü": "\u00e4 😀"}'.encode(), b'"text"', b"[]", b'{"long":"' + b"x" * 900_000 + b'"}', b"0"]
        broker.send("a", sent)
        async with reading(broker.upstream().producer()) as stream:
            arrived = [raw.data for raw, _ in await stream.take(5)]
        assert arrived == sent if broker.ordered else sorted(arrived) == sorted(sent)

    def test_an_upstream_can_be_serialised_and_loaded(self, broker: Broker) -> None:
        upstream = broker.upstream()
        again = load_upstream(*upstream.serialize())
        assert again.serialize() == upstream.serialize()
        assert (again.stream_key(), again.source, again.event_type) == (upstream.stream_key(), upstream.source, upstream.event_type)

    @contract_case()
    async def test_many_messages_arrive_once_each_and_are_advanced(self, broker: Broker) -> None:
        """Four lanes, sent while they are read. Each lane is advanced in batches, several lanes at once."""
        total, lanes = self.many, "abcd" if broker.lanes else "a"
        each = total // 40
        step = total // 10 if broker.unbounded else 1  # the rest of a lane may come only after all that came is advanced
        producer = broker.upstream().producer()
        expected = [messages(each, start=start) for start in range(0, total, each)]
        arrived: dict[Any, list[bytes]] = defaultdict(list)
        ready: dict[Any, list[AdvanceItem]] = defaultdict(list)

        async def send() -> None:
            for number, part in enumerate(expected):
                await asyncio.to_thread(broker.send, lanes[number % len(lanes)], part)

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
                if count % step == 0:
                    await asyncio.gather(*map(advance, list(ready)))
        await producer.aclose()
        if broker.growable:
            sent = [[message for part in expected[first :: len(lanes)] for message in part] for first in range(len(lanes))]
        else:
            sent = expected
        assert sorted(arrived.values() if broker.ordered else map(sorted, arrived.values())) == sorted(
            sent if broker.ordered else map(sorted, sent)
        )
        broker.send("e", messages(1, start=total))
        async with reading(broker.upstream().producer()) as again:
            assert [raw.data for raw, _ in await again.take(1)] == messages(1, start=total)


def messages(count: int, start: int = 0) -> list[bytes]:
    """Return messages with the numbers from `start` on."""
    return [b'{"n":%d}' % number for number in range(start, start + count)]


def _threads() -> list[threading.Thread]:
    """Return the threads of this process but those of asyncio's default pool."""
    return [thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")]


def _descriptors() -> int:
    """Return the number of open descriptors, or 0 where the system has no list of them."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0
