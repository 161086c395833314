"""Shards that are split and merged while they are read: parents before children, without a restart."""

from __future__ import annotations

import asyncio

import pytest

from headrace.testing.contract.reading import Reading, reading
from support.sources.kinesis import MAX_HASH, KinesisStream, MakeStream
from support.sources.kit import PATIENCE
from support.sources.reading import items_of, numbers, numbers_of, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kinesis"), pytest.mark.timeout(2 * PATIENCE)]

FIRST = "shardId-000000000000"
LOW, HIGH = 0, MAX_HASH - 1


def split(stream: KinesisStream, shard: str = FIRST) -> None:
    stream.server.kinesis.split_shard(StreamName=stream.name, ShardToSplit=shard, NewStartingHashKey=str(MAX_HASH // 2))


def merge(stream: KinesisStream, one: str, other: str) -> None:
    stream.server.kinesis.merge_shards(StreamName=stream.name, ShardToMerge=one, AdjacentShardToMerge=other)


def is_finished(stream: KinesisStream, *shards: str) -> bool:
    items = stream.items()
    return all("finished" in items.get(shard, {}) for shard in shards)


async def nothing_comes(opened: Reading) -> bool:
    """Return whether no message comes for several requests to each shard."""
    try:
        async with asyncio.timeout(1):
            await opened.take(1)
    except TimeoutError:
        return True
    return False


async def test_children_of_a_split_shard_begin_once_all_of_it_is_advanced(stream: KinesisStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as opened:
        items = await opened.take(10)
        split(stream)
        stream.send(numbers(10, 12), hash_key=LOW)
        stream.send(numbers(12, 14), hash_key=HIGH)
        await opened.advance(items[:9])
        assert await nothing_comes(opened)
        await opened.advance(items[9:])
        later = await opened.take(4)
        assert sorted(numbers_of(later)) == [10, 11, 12, 13]
        assert sorted(raw.position for raw, _ in later) == [1, 1, 2, 2]
        assert len({raw.lane for raw, _ in [*items, *later]}) == 3
        await opened.advance(later)
    assert is_finished(stream, FIRST)
    async with reading(stream.producer()) as opened:
        stream.send(numbers(14, 15), hash_key=HIGH)
        assert numbers_of(await opened.take(1)) == [14]


async def test_a_failed_record_of_a_parent_holds_its_children_until_it_is_read_again(stream: KinesisStream) -> None:
    stream.send(numbers(0, 5))
    split(stream)
    stream.send(numbers(5, 6), hash_key=HIGH)
    async with reading(stream.producer()) as opened:
        items = await opened.take(5)
        await opened.producer.advance(items_of(items, failed=[3]))
        assert await nothing_comes(opened)
    async with reading(stream.producer()) as opened:
        again = await opened.take(2)
        assert numbers_of(again) == [3, 4]
        assert [raw.position for raw, _ in again] == [4, 5]
        await opened.advance(again)
        assert numbers_of(await opened.take(1)) == [5]


async def test_a_merged_shard_begins_after_both_of_its_parents(make_stream: MakeStream) -> None:
    stream = make_stream(shards=2)
    stream.send(numbers(0, 3), hash_key=LOW)
    stream.send(numbers(3, 6), hash_key=HIGH)
    async with reading(stream.producer()) as opened:
        items = await opened.take(6)
        merge(stream, FIRST, "shardId-000000000001")
        stream.send(numbers(6, 8))
        first_lane = [item for item in items if item[0].lane == items[0][0].lane]
        await opened.advance(first_lane)
        assert await nothing_comes(opened)
        await opened.advance(item for item in items if item not in first_lane)
        assert numbers_of(await opened.take(2)) == [6, 7]
    assert is_finished(stream, FIRST, "shardId-000000000001")


async def test_a_reader_that_begins_at_the_latest_record_reads_no_closed_shard(stream: KinesisStream) -> None:
    stream.send(numbers(0, 3))
    split(stream)
    await asyncio.sleep(1.1)  # the service tells its time in seconds
    async with reading(stream.producer(start="latest")) as opened:
        await until_in_thread(lambda: is_finished(stream, FIRST) and len(stream.items()) == 4)
    stream.send(numbers(3, 4), hash_key=LOW)
    async with reading(stream.producer(start="latest")) as opened:
        ((raw, _),) = await opened.take(1)
        assert (raw.value, raw.position) == ({"n": 3}, 1)
