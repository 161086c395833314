"""Committed offsets: transactions, retention, and topics that are created again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamError, UpstreamError
from headrace.sources.kafka.producer import KafkaProducer
from headrace.sources.peeks.peek import PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from headrace.triggers.stream_log import LaneMove, LogState, StreamLog, StreamSeek
from support.sources.kafka import KafkaTopic, MakeTopic
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


def read_before(receipts: int, seek: StreamSeek | None = None) -> StreamLog:
    """Return an event log with receipts of the stream, and a planned seek."""

    async def look_up(stream: str) -> LogState:
        return LogState("log", 0)

    return StreamLog("kafka:test", LogState("log", receipts, seek=seek), look_up)


async def opened(topic: KafkaTopic, receipts: int, **arguments: Any) -> list[int]:
    """Open the upstream with an event log, and return the committed offsets of its partitions after the first commit."""
    producer = topic.producer(**arguments)
    producer.log = read_before(receipts)
    async with reading(producer):
        await until(lambda: producer._reader is not None and bool(producer._reader.partitions.assigned))
        partitions = [] if producer._reader is None else list(producer._reader.partitions)
        await until(lambda: all(one.committed >= 0 for one in partitions))
        return [one.committed for one in partitions]


async def test_a_latest_start_at_an_empty_topic_stays_where_it_was(topic: KafkaTopic) -> None:
    assert await opened(topic, 0, start="latest") == [0]
    topic.send(numbers(0, 3))
    async with reading(topic.producer(start="latest")) as stream:
        assert [raw.data for raw, _ in await stream.take(3)] == numbers(0, 3)


def commit_beyond_the_end(topic: KafkaTopic, offset: int, partition: int = 0) -> None:
    """Leave what a broker leaves that has lost the end of a partition: a committed offset after its last message."""
    import confluent_kafka

    consumer = topic.server.consumer(topic.group)
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic.name, partition, offset)], asynchronous=False)
    consumer.close()


async def refusal(topic: KafkaTopic) -> UpstreamError:
    """Open the upstream, and return the error that it raises."""
    with pytest.raises(UpstreamError, match="Messages may be lost") as raised:
        async with reading(topic.producer()) as stream:
            await stream.take(1)
    return raised.value


async def test_a_broker_that_lost_messages_is_refused_also_when_the_partition_has_grown(topic: KafkaTopic) -> None:
    """New messages have the offsets of lost ones: they would be skipped, or taken for duplicates."""
    topic.send(numbers(0, 50))
    commit_beyond_the_end(topic, 100)
    error = await refusal(topic)
    assert f"{topic.name}/0" in str(error)
    assert "ends at offset 49, and was read up to 99" in str(error)
    assert "another group" in str(error.hint)
    assert topic.committed() == 100
    topic.send(numbers(50, 120))
    assert "ended at offset 49" in str(await refusal(topic))
    async with reading(topic.producer(group=f"{topic.group}-2", start={topic.name: {0: 50}})) as stream:
        assert [raw.data for raw, _ in await stream.take(70)] == numbers(50, 120)


async def test_a_seek_reads_a_partition_that_its_broker_has_cut(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 50))
    commit_beyond_the_end(topic, 100)
    lane = str(await refusal(topic)).partition("partition ")[2].partition(" ")[0]

    async def begin(moves: Mapping[str, LaneMove]) -> Mapping[str, int]:
        return {lane: move.position for lane, move in moves.items()}

    async def finish(lanes: Collection[str]) -> None:
        assert set(lanes) == {lane}

    producer = topic.producer()
    producer.log = read_before(5, StreamSeek({lane: 45}, begin, finish))
    async with reading(producer) as stream:
        assert [raw.data for raw, _ in await stream.take(5)] == numbers(45, 50)
    async with reading(topic.producer()) as stream:
        assert [raw.data for raw, _ in await stream.take(5)] == numbers(45, 50)


async def test_an_empty_partition_that_was_read_is_refused_and_a_peek_changes_nothing(topic: KafkaTopic) -> None:
    commit_beyond_the_end(topic, 7)
    shown = await peek_upstream(topic.upstream(), PeekRequest(5))
    assert any("the broker has lost them" in note for note in shown.notes)
    assert "is empty, and was read up to 6" in str(await refusal(topic))


async def test_a_group_whose_offsets_are_gone_is_read_again_from_its_first_message(make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    topic.send(numbers(0, 10))
    producer = topic.producer(start="latest")
    producer.log = read_before(5)
    async with reading(producer) as stream:
        assert [raw.data for raw, _ in await stream.take(10)] == numbers(0, 10)
        assert "has no committed offsets, and was read before" in producer.get_errors()["group"]
    assert await opened(topic, 0, group=f"{topic.group}-new", start="latest") == [10, 0], "the first reading"


async def test_the_first_shard_reads_a_group_whose_offsets_are_gone_from_its_first_message(make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    for number in range(2):
        topic.send(numbers(0, 10), number)
    producers = [one.producer() for one in topic.upstream(shards=2, start="latest").split()]
    for producer in producers:
        producer.log = read_before(5)
    async with reading(producers[0]) as first, reading(producers[1]) as second:
        assert [raw.data for raw, _ in await first.take(10)] == numbers(0, 10)
        assert [raw.data for raw, _ in await second.take(10)] == numbers(0, 10)
        assert "has no committed offsets" in producers[0].get_errors()["group"]
