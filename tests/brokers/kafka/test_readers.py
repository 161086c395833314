"""Several readers of one group, and commits of a reader that lost its partitions."""

from __future__ import annotations

import pytest

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamError, UpstreamFenced
from headrace.testing.contract.reading import reading
from support.sources.kafka import KafkaTopic, MakeTopic
from support.sources.reading import ACKED, FAILED, advance_until_done, numbers, until

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("kafka")]


async def test_a_second_reader_fences_the_first(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 100))
    async with reading(topic.producer()) as first:
        items = await first.take(100)
        await first.advance(items[:10])
        async with reading(topic.producer()) as second:
            again = await second.take(90)
            assert [raw.data for raw, _ in again] == numbers(10, 100)
            with pytest.raises(UpstreamFenced):
                await first.advance(items[:50])
            assert topic.committed() == 10
            with pytest.raises(UpstreamFenced):
                await first.take(1)
            await second.advance(again[:5])
            assert topic.committed() == 15


async def test_an_idle_reader_that_was_fenced_ends(topic: KafkaTopic) -> None:
    async with reading(topic.producer()) as first:
        topic.send(numbers(0, 1))
        await first.take(1)
        async with reading(topic.producer()) as second:
            await second.take(1)
            with pytest.raises(UpstreamFenced):
                await first.take(1)


async def test_a_reader_that_is_fenced_when_its_session_has_ended_joins_again(topic: KafkaTopic) -> None:
    """The client may fence itself then, in a window of milliseconds. Here, a second reader does it at the right time."""
    topic.send(numbers(0, 10))
    producer = topic.producer()
    async with reading(producer) as first:
        items = await first.take(10)
        assert producer._reader is not None
        producer._reader._has_lost_session = True
        async with reading(topic.producer()) as second:
            await second.take(10)
            with pytest.raises(UpstreamFenced):
                await second.take(1)
        topic.send(numbers(10, 20))
        later = await first.take(10)
        assert [raw.data for raw, _ in later] == numbers(10, 20)
        await advance_until_done(first, [*items, *later])
        assert topic.committed() == 20


async def test_a_partition_that_another_member_took_is_not_committed(make_topic: MakeTopic) -> None:
    """A program reads with the same group: the reader keeps its other partition, and goes on with it."""
    topic = make_topic(partitions=2)
    topic.send(numbers(0, 10), 0)
    topic.send(numbers(10, 20), 1)
    async with reading(topic.producer()) as stream:
        items = await stream.take(20)
        other = topic.server.consumer(topic.group, **{"partition.assignment.strategy": "range,roundrobin"})
        other.subscribe([topic.name])
        taken: list[int] = []

        def has_taken() -> bool:
            other.poll(0)
            taken[:] = [one.partition for one in other.assignment()]
            return len(taken) == 1

        await until(has_taken)
        lost = [item for item in items if item[0].partition.key.number in taken]
        ours = [item for item in items if item[0].partition.key.number not in taken]
        await stream.advance(ours)
        with pytest.raises(StreamError, match="not assigned"):
            await stream.advance(lost)
        assert topic.committed(taken[0]) <= 0
        assert topic.committed(1 - taken[0]) == 10
        other.close()
        await advance_until_done(stream, lost)
        assert topic.committed(taken[0]) == 10


async def test_a_rebalance_repeats_no_position_and_keeps_a_floor(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 10))
    async with reading(topic.producer()) as stream:
        items = await stream.take(10)
        outcomes = [FAILED if raw.value["n"] == 4 else ACKED for raw, _ in items[:7]]
        await stream.producer.advance([AdvanceItem(payload, outcome) for (_, payload), outcome in zip(items[:7], outcomes, strict=True)])
        topic.server.add_partitions(topic.name, 2)
        topic.send(numbers(10, 12), 1)
        topic.send(numbers(12, 14), 0)
        later = await stream.take(4)
        assert sorted(raw.value["n"] for raw, _ in later) == [10, 11, 12, 13]
        await stream.advance([*items[7:], *later])
        assert topic.committed() == 4
    async with reading(topic.producer()) as stream:
        again = await stream.take(8)
        assert [raw.data for raw, _ in again] == [*numbers(4, 10), *numbers(12, 14)]


async def test_a_group_of_the_new_protocol_is_read_and_committed(topic: KafkaTopic) -> None:
    topic.set_connection(topic.server.address, group_protocol="consumer")
    topic.send(numbers(0, 100))
    async with reading(topic.producer()) as stream:
        items = await stream.take(100)
        await stream.advance(items[:30])
        topic.server.add_partitions(topic.name, 2)
        topic.send(numbers(100, 102), 1)
        assert [raw.data for raw, _ in await stream.take(2)] == numbers(100, 102)
    async with reading(topic.producer()) as stream:
        again = await stream.take(72)
        assert sorted(raw.value["n"] for raw, _ in again) == list(range(30, 102))
        await stream.advance(again)
        assert [topic.committed(number) for number in (0, 1)] == [100, 2]
