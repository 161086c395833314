"""Faults of a topic and its broker while two shards of the topic are read side by side. These tests kill a server of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest

from headrace.sources.kafka.buffer import Buffer
from headrace.sources.kafka.reader import KafkaReader
from headrace.testing.contract.reading import Reading, opened, reading
from support.processes.kafka import KafkaServer
from support.sources.kafka import KafkaTopic, MakeTopic
from support.sources.reading import advance_until_done, items_of, numbers, numbers_of, until, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka-shard-faults")]


@pytest.fixture
def topic(make_topic: MakeTopic, own_server: KafkaServer) -> KafkaTopic:
    """Return a topic of two partitions, one for each shard."""
    return make_topic(partitions=2, server=own_server)


@asynccontextmanager
async def both_shards(topic: KafkaTopic) -> AsyncIterator[list[Reading]]:
    """Read both shards until the block ends."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(reading(shard.producer())) for shard in topic.upstream(shards=2).split()]


def send(topic: KafkaTopic, first: int, last: int) -> None:
    """Send the messages with these numbers to each partition."""
    for partition in range(2):
        topic.send(numbers(first, last), partition)


def committed(topic: KafkaTopic) -> list[int]:
    return [topic.committed(partition) for partition in range(2)]


async def test_a_killed_broker_costs_no_shard_a_message_and_repeats_none(topic: KafkaTopic) -> None:
    """Of each shard, the broker is killed after an advance of one half and before the advance of the other."""
    send(topic, 0, 100)
    async with both_shards(topic) as shards:
        taken = [await shard.take(100) for shard in shards]
        for shard, items in zip(shards, taken, strict=True):
            await shard.advance(items[:50])
        await asyncio.to_thread(topic.server.kill)
        await until(lambda: all("brokers" in shard.producer.get_errors() for shard in shards))
        await asyncio.to_thread(topic.server.start)
        assert await asyncio.to_thread(committed, topic) == [50, 50]
        await asyncio.to_thread(send, topic, 100, 120)
        for shard, items in zip(shards, taken, strict=True):
            items += await shard.take(20)
            assert numbers_of(items) == list(range(120))
            await advance_until_done(shard, items[50:])
        assert await asyncio.to_thread(committed, topic) == [120, 120]
    await asyncio.to_thread(send, topic, 120, 121)
    async with both_shards(topic) as shards:
        assert [numbers_of(await shard.take(1)) for shard in shards] == [[120], [120]]


async def test_retention_that_overtook_one_shard_is_a_gap_of_that_shard_only(topic: KafkaTopic) -> None:
    send(topic, 0, 100)
    async with both_shards(topic) as shards:
        for shard in shards:
            await shard.advance((await shard.take(10))[:10])
    topic.server.delete_before(topic.name, 50, 1)
    async with both_shards(topic) as shards:
        whole, overtaken = [await shard.take(count) for shard, count in zip(shards, (90, 50), strict=True)]
        assert numbers_of(whole) == list(range(10, 100))
        assert numbers_of(overtaken) == list(range(50, 100))
        assert shards[0].producer.get_errors() == {}
        errors = shards[1].producer.get_errors()
        assert list(errors) == [overtaken[0][0].lane]
        assert "Messages 10 to 49 are missing." in errors[overtaken[0][0].lane]


async def test_a_topic_that_is_created_again_is_another_lane_of_each_shard(topic: KafkaTopic) -> None:
    send(topic, 0, 10)
    async with both_shards(topic) as shards:
        before = [await shard.take(10) for shard in shards]
        for shard, items in zip(shards, before, strict=True):
            await shard.advance(items)
        topic.server.delete_topic(topic.name)
        await until(lambda: all(shard.producer.get_errors() for shard in shards))
        await asyncio.to_thread(topic.server.create_topic, topic.name, 2)
        await asyncio.to_thread(send, topic, 10, 30)
        for number, shard in enumerate(shards):
            again = await shard.take(20)
            assert numbers_of(again) == list(range(10, 30))
            assert again[0][0].position == 0
            assert again[0][0].lane != before[number][0][0].lane
            assert again[0][1].partition.key.number == number
            await shard.advance(again)
        await until_in_thread(lambda: committed(topic) == [20, 20])


async def test_a_stuck_consumer_of_one_shard_does_not_hold_the_other(topic: KafkaTopic) -> None:
    send(topic, 0, 3_000)
    first, second = (shard.producer() for shard in topic.upstream(shards=2).split())
    async with aclosing(first), opened(first) as stuck, reading(second) as other:
        items = [await anext(stuck)]
        await other.advance(await other.take(3_000))
        await until_in_thread(lambda: committed(topic) == [0, 3_000])  # the stuck shard has committed its start only
        while len(items) < 3_000:
            items.append(await anext(stuck))
        assert numbers_of(items) == list(range(3_000))
        await first.advance(items_of(items))
        assert await asyncio.to_thread(committed, topic) == [3_000, 3_000]


async def test_a_reader_that_gets_room_during_a_rebalance_reads_on(topic: KafkaTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client keeps the pause of a partition over assignments: once, the reader believed that it had resumed it."""
    revoke = KafkaReader._on_revoke

    def revoke_and_make_room(reader: KafkaReader, consumer: Any, revoked: Any) -> None:
        revoke(reader, consumer, revoked)
        reader._buffer = Buffer()

    monkeypatch.setattr(KafkaReader, "_on_revoke", revoke_and_make_room)
    send(topic, 0, 3_000)
    first, second = (shard.producer() for shard in topic.upstream(shards=2).split())
    async with aclosing(first), opened(first) as stuck:
        items = [await anext(stuck)]
        reader = first._reader
        assert reader is not None
        await until(lambda: reader._pause.is_active)
        async with reading(second) as other:
            await other.advance(await other.take(3_000))
            items += [await anext(stuck) for _ in range(2_999)]
            assert numbers_of(items) == list(range(3_000))
