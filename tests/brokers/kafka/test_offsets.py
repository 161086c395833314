"""Committed offsets: transactions, retention, and topics that are created again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamError
from headrace.sources.kafka.producer import KafkaProducer
from headrace.testing.contract.reading import reading
from support.sources.kafka import KafkaTopic
from support.sources.kit import PATIENCE
from support.sources.reading import ACKED, numbers, until, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("kafka")]


async def test_only_committed_transactions_are_read_and_the_lag_becomes_zero(topic: KafkaTopic) -> None:
    for first, abort in ((0, False), (2, True), (4, False), (6, True)):
        await asyncio.to_thread(topic.server.transaction, topic.name, numbers(first, first + 2), abort=abort)
    async with reading(topic.producer()) as stream:
        items = await stream.take(4)
        assert [raw.value["n"] for raw, _ in items] == [0, 1, 4, 5]
        await stream.advance(items[:3])
        assert topic.committed() == items[2][0].position + 1
        await stream.advance(items[3:])
        end = topic.server.end(topic.name)
        await until_in_thread(lambda: topic.committed() == end)
        lane = items[0][0].lane
        await until(lambda: stream.producer.get_committed(lane) == stream.producer.get_lane_end(lane) == end - 1)
    topic.send(numbers(8, 9))
    async with reading(topic.producer()) as stream:
        assert [raw.data for raw, _ in await stream.take(1)] == numbers(8, 9)


async def test_the_end_of_a_lane_is_not_committed_before_its_messages_are_answered(topic: KafkaTopic) -> None:
    await asyncio.to_thread(topic.server.transaction, topic.name, numbers(0, 2))
    await asyncio.to_thread(topic.server.transaction, topic.name, numbers(2, 4), abort=True)
    async with reading(topic.producer()) as stream:
        items = await stream.take(2)
        lane, end = items[0][0].lane, topic.server.end(topic.name)
        await until(lambda: stream.producer.get_lane_end(lane) == end - 1)
        await stream.advance(items[:1])
        assert topic.committed() == 1


async def test_retention_that_overtook_the_group_is_a_named_gap(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 100))
    async with reading(topic.producer()) as stream:
        await stream.advance((await stream.take(10))[:10])
    topic.server.delete_before(topic.name, 50)
    async with reading(topic.producer()) as stream:
        items = await stream.take(50)
        lane = items[0][0].lane
        assert [raw.data for raw, _ in items] == numbers(50, 100)
        assert "Messages 10 to 49 are missing." in stream.producer.get_errors()[lane]
        # The audit takes the range up to the committed position for one without receipts.
        await until(lambda: stream.producer.get_committed(lane) == 49)


async def test_retention_that_overtakes_a_reader_ends_the_stream_once_all_is_answered(topic: KafkaTopic) -> None:
    topic.set_connection(topic.server.address, queued_min_messages="1", queued_max_messages_kbytes="1", max_partition_fetch_bytes="3000")
    topic.send([b'{"n":%d,"x":"%s"}' % (number, b"x" * 2_000) for number in range(4_000)])
    producer = topic.producer()
    stream = producer.open_stream()
    items = [await anext(stream)]
    await asyncio.to_thread(topic.server.delete_before, topic.name, 3_990)
    with pytest.raises(StreamError, match="retention of the broker has overtaken lane"):
        await _read_and_advance(producer, stream, items)
    await producer.aclose()
    read = items[-1][0].position or 0
    assert read < 3_989
    async with reading(topic.producer()) as again:
        first = (await again.take(1))[0][0]
        assert first.position == 3_990
        assert f"Messages {read + 1} to 3989 are missing." in again.producer.get_errors()[first.lane]


async def _read_and_advance(producer: KafkaProducer, stream: AsyncIterator[tuple[Any, Any]], items: list[tuple[Any, Any]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            await producer.advance([AdvanceItem(items[-1][1], ACKED)])
            items.append(await anext(stream))


async def test_a_topic_that_is_created_again_while_it_is_read_is_another_lane(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 10))
    seen = []
    async with reading(topic.producer()) as stream:
        seen += await stream.take(10)
        await stream.advance(seen)
        topic.server.delete_topic(topic.name)
        await until(lambda: bool(stream.producer.get_errors()))
        await asyncio.to_thread(topic.server.create_topic, topic.name)
        topic.send(numbers(10, 30))
        again = await stream.take(20)
        assert [raw.data for raw, _ in again] == numbers(10, 30)
        assert again[0][0].position == 0
        assert again[0][0].lane != seen[0][0].lane
        await stream.advance(again)
        await until_in_thread(lambda: topic.committed() == 20)


async def test_a_topic_that_is_created_again_between_two_readers_is_read_from_its_first_message(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 10))
    async with reading(topic.producer()) as stream:
        first = await stream.take(10)
        await stream.advance(first)
    topic.server.delete_topic(topic.name)
    await asyncio.to_thread(topic.server.create_topic, topic.name)
    topic.send(numbers(10, 30))
    async with reading(topic.producer()) as stream:
        again = await stream.take(20)
        assert [raw.data for raw, _ in again] == numbers(10, 30)
        assert again[0][0].lane != first[0][0].lane
