"""Records that the retention deletes before they are read, and streams that are created again."""

from __future__ import annotations

import asyncio
import time

import pytest

from headrace.errors import StreamError
from headrace.sources.kinesis.lanes import LOST_POSITIONS
from headrace.testing.contract.reading import reading
from support.sources.kinesis import KinesisStream
from support.sources.kit import PATIENCE
from support.sources.reading import numbers, numbers_of, until, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kinesis"), pytest.mark.timeout(2 * PATIENCE)]

SHARD = "shardId-000000000000"
HOUR_MS = 3_600_000


def hours_ago(hours: float) -> int:
    return int(time.time() * 1_000 - hours * HOUR_MS)


async def advanced(stream: KinesisStream, count: int) -> None:
    """Read and advance this many records."""
    async with reading(stream.producer()) as opened:
        await opened.advance(await opened.take(count))


async def test_records_deleted_while_no_reader_ran_are_a_gap(stream: KinesisStream) -> None:
    stream.send(numbers(0, 10))
    await advanced(stream, 10)
    stream.send(numbers(10, 30))
    stream.server.control("trim", stream.name, 25)
    stream.set_times(SHARD, hours_ago(25))
    producer = stream.producer()
    for _ in range(2):  # the gap is stored before the first record after it is delivered
        producer = stream.producer()
        async with reading(producer) as opened:
            later = await opened.take(5)
            assert numbers_of(later) == list(range(25, 30))
            lane = later[0][0].lane
            # The receipts begin at the committed position, and leave the gap open: the audit names it.
            assert producer.get_committed(lane) == 10 + LOST_POSITIONS
            assert later[0][0].position == 11 + LOST_POSITIONS
            problem = producer.get_errors().get(f"{lane} (lost records)", "stored")
            assert problem == "stored" or "may be lost: the retention has deleted what arrived between" in problem
            if problem == "stored":
                await opened.advance(later)
                assert producer.get_committed(lane) == producer.get_lane_end(lane) == 15 + LOST_POSITIONS


async def test_a_reader_that_was_away_for_longer_than_the_retention_has_lost_nothing_if_its_last_record_is_there(
    stream: KinesisStream,
) -> None:
    stream.send(numbers(0, 10))
    await advanced(stream, 10)
    stream.set_times(SHARD, hours_ago(25))
    stream.send(numbers(10, 12))
    producer = stream.producer()
    async with reading(producer) as opened:
        later = await opened.take(2)
        assert [raw.position for raw, _ in later] == [11, 12]
        assert producer.get_errors() == {}


async def test_an_idle_shard_whose_last_record_is_deleted_has_lost_nothing(stream: KinesisStream) -> None:
    stream.send(numbers(0, 10))
    await advanced(stream, 10)
    stream.set_times(SHARD, hours_ago(20))
    stream.server.control("trim", stream.name, 10)
    stream.send(numbers(10, 12))
    producer = stream.producer()
    async with reading(producer) as opened:
        later = await opened.take(2)
        assert [raw.position for raw, _ in later] == [11, 12]
        assert producer.get_errors() == {}


async def test_an_idle_shard_stores_its_time(stream: KinesisStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.kinesis.reader.REFRESH_MS", 500)
    stream.send(numbers(0, 3))
    async with reading(stream.producer()) as opened:
        items = await opened.take(3)
        await opened.advance(items[:2])
        before = stream.items()[SHARD]["known"]
        await asyncio.sleep(1)
        assert stream.items()[SHARD]["known"] == before  # a record is not advanced
        await opened.advance(items[2:])
        await until_in_thread(lambda: int(stream.items()[SHARD]["known"]["N"]) > items[2][1].arrived_ms + 1_000)
    assert stream.stored() == 3


async def test_records_deleted_before_the_first_of_them_was_advanced_are_a_gap(stream: KinesisStream) -> None:
    """Their positions were given already, so the next ones begin far behind them."""
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as opened:
        await opened.take(10)
    stream.server.control("trim", stream.name, 4)
    stream.set_times(SHARD, hours_ago(25))
    async with reading(stream.producer()) as opened:
        later = await opened.take(6)
    assert numbers_of(later) == list(range(4, 10))
    assert later[0][0].position == 1 + LOST_POSITIONS


async def test_a_reader_that_the_retention_overtakes_ends_once_all_else_is_answered(stream: KinesisStream) -> None:
    stream.send(numbers(0, 5))
    producer = stream.producer()
    async with reading(producer) as opened:
        items = await opened.take(5)
        lane = items[0][1].lane
        await until(lambda: lane.at_end_ms is not None)
        lane.known_ms = hours_ago(25)
        lane.reached = lambda known_ms, at_end: None  # as if the shard had not been read since
        stream.send(numbers(5, 6))
        await until(lambda: bool(producer.get_errors()))
        await opened.advance(items)
        with pytest.raises(StreamError, match="has overtaken lane"):
            await opened.take(1)


async def test_a_shard_that_is_gone_before_it_was_finished_is_reported(stream: KinesisStream) -> None:
    stream.send(numbers(0, 5))
    await advanced(stream, 5)
    item = stream.items()[SHARD]
    gone = "shardId-000000000099@" + item["shard"]["S"].partition("@")[2]
    stream.server.dynamodb.put_item(TableName="headrace-kinesis", Item=item | {"shard": {"S": gone}})
    stream.send(numbers(5, 6))
    await advanced(stream, 1)
    assert "shardId-000000000099" in stream.items()  # the retention has not passed: it may be listed again
    stream.set_times("shardId-000000000099", hours_ago(25))
    stream.send(numbers(6, 7))
    producer = stream.producer()
    async with reading(producer) as opened:
        await opened.take(1)
        assert "has no shard shardId-000000000099 any more" in producer.get_errors()[f"{gone} (lost records)"]
    assert "shardId-000000000099" not in stream.items()


async def test_a_stream_that_was_created_again_has_new_lanes(stream: KinesisStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as opened:
        items = await opened.take(10)
        await opened.advance(items)
    stream.make_again()
    stream.send(numbers(10, 12))
    producer = stream.producer(start="latest")
    async with reading(producer) as opened:
        later = await opened.take(2)
        assert "was deleted and created again" in producer.get_errors()["progress"]
    assert numbers_of(later) == [10, 11]
    assert [raw.position for raw, _ in later] == [1, 2]
    assert later[0][0].lane != items[0][0].lane
    assert {raw.id for raw, _ in later}.isdisjoint(raw.id for raw, _ in items)
    assert len(stream.items()) == 2  # what was stored of the former stream is deleted


async def test_a_stream_created_again_while_it_is_read_ends_the_reading(stream: KinesisStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.kinesis.reader.WATCH_SECONDS", 0.2)
    async with reading(stream.producer()) as opened:
        stream.send(numbers(0, 1))
        await opened.take(1)
        stream.make_again()
        with pytest.raises(StreamError, match=r"created again while it was read|cannot be"):
            await opened.take(1)
