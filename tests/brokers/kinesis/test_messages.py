"""Records as raw events: their metadata, aggregated records, limits of the service, iterators that expire, and where reading begins."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from hashlib import md5

import pytest

from headrace.testing.contract.reading import reading
from support.sources.kinesis import KinesisStream, MakeStream
from support.sources.kit import PATIENCE
from support.sources.reading import items_of, numbers, numbers_of, until, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kinesis"), pytest.mark.timeout(2 * PATIENCE)]


def field(number: int, data: bytes) -> bytes:
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def aggregated(values: list[bytes], key: str = "ada") -> bytes:
    """Return one record of several, as the Kinesis Producer Library sends it."""
    body = field(1, key.encode()) + b"".join(field(3, b"\x08\x00" + field(3, value)) for value in values)
    return b"\xf3\x89\x9a\xc2" + body + md5(body).digest()


async def test_a_record_has_its_key_time_and_id(stream: KinesisStream) -> None:
    stream.send([b'{"n": 1}'], key="ada")
    async with reading(stream.producer()) as opened:
        ((raw, _),) = await opened.take(1)
    assert (raw.value, raw.key, raw.position) == ({"n": 1}, "ada", 1)
    assert abs(datetime.now(UTC) - raw.timestamp) < timedelta(minutes=1)
    shard, _, sequence = raw.id.partition("/")
    assert shard.startswith("shardId-000000000000@")
    assert int(sequence) > 2**128  # longer than a position


async def test_aggregated_records_are_messages_with_positions_of_their_own(stream: KinesisStream) -> None:
    stream.send([b'{"n":0}', aggregated(numbers(1, 5)), b'{"n":5}'])
    async with reading(stream.producer()) as opened:
        items = await opened.take(6)
        assert numbers_of(items) == list(range(6))
        assert [raw.position for raw, _ in items] == [1, 2, 3, 4, 5, 6]
        assert [raw.key for raw, _ in items] == ["k", "ada", "ada", "ada", "ada", "k"]
        assert len({raw.id for raw, _ in items}) == 6
        await opened.advance(items[:3])  # in the middle of the record
    async with reading(stream.producer()) as opened:
        again = await opened.take(3)
        assert [(raw.position, raw.id) for raw, _ in again] == [(raw.position, raw.id) for raw, _ in items[3:]]
        await opened.producer.advance(items_of(again, failed=[4]))
    async with reading(stream.producer()) as opened:
        assert numbers_of(await opened.take(2)) == [4, 5]


async def test_aggregated_records_of_another_shard_are_reported(make_stream: MakeStream) -> None:
    """A sender that aggregates records of all keys, as the Kinesis Producer Library does not."""
    stream = make_stream(shards=2)
    keys = [f"user-{number}" for number in range(20)]
    body = b"".join(field(1, key.encode()) for key in keys)
    body += b"".join(field(3, bytes([0x08, number]) + field(3, b'{"n":%d}' % number)) for number in range(20))
    stream.send([b"\xf3\x89\x9a\xc2" + body + md5(body).digest()], hash_key=0)
    own = [number for number, key in enumerate(keys) if md5(key.encode()).digest()[0] < 128]
    producer = stream.producer()
    async with reading(producer) as opened:
        items = await opened.take(len(own))
        assert numbers_of(items) == own
        await until(lambda: bool(producer.get_errors()))
        ((name, text),) = producer.get_errors().items()
        assert name == f"{items[0][0].lane} (left out)"
        assert text.startswith(f"{20 - len(own)} records within aggregated ones were left out")


async def test_a_value_in_another_format_is_malformed(stream: KinesisStream) -> None:
    stream.send([b"\xff"])
    async with reading(stream.producer(decode="text")) as opened:
        ((raw, _),) = await opened.take(1)
    assert "Not UTF-8" in raw.malformed


async def test_a_limit_of_requests_delays_one_stream_and_loses_nothing(make_stream: MakeStream) -> None:
    """The service takes one request per second and shard: most are rejected."""
    stream = make_stream(shards=2)
    stream.server.control("limit", stream.name, 1)
    async with reading(stream.producer()) as opened:
        for first in (0, 20):
            stream.send(numbers(first, first + 10), hash_key=0)
            stream.send(numbers(first + 10, first + 20), hash_key=2**128 - 1)
            items = await opened.take(20)
            assert sorted(numbers_of(items)) == list(range(first, first + 20))
            await opened.advance(items)
        await until_in_thread(lambda: stream.server.control("limit", stream.name, 1) > 0)
    assert stream.stored() == 40


async def test_an_iterator_that_has_expired_is_replaced_at_the_last_record(stream: KinesisStream) -> None:
    stream.send([*numbers(0, 2), aggregated(numbers(2, 4))])
    async with reading(stream.producer()) as opened:
        await opened.take(4)
        for number in range(4, 7):
            stream.server.control("expire", stream.name)
            stream.send(numbers(number, number + 1))
            ((raw, _),) = await opened.take(1)
            assert (raw.value["n"], raw.position) == (number, number + 1)


async def test_what_the_stream_does_not_take_stays_at_the_service(stream: KinesisStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.kinesis.reader.START_RECORDS", 10)
    monkeypatch.setattr("headrace.sources.inbox.MAX_MESSAGES", 20)
    stream.send(numbers(0, 100))
    producer = stream.producer()
    opened = producer.open_stream()
    try:
        await anext(opened)
        await asyncio.sleep(1.5)
        reader = producer._reader
        assert reader is not None
        assert len(reader._inbox) <= 20
        assert producer.get_unread() is None
        assert [(await anext(opened))[0].value["n"] for _ in range(99)] == list(range(1, 100))
    finally:
        await opened.aclose()  # type: ignore[attr-defined]
        await producer.aclose()


async def test_reading_begins_at_a_time(stream: KinesisStream) -> None:
    stream.send(numbers(0, 3))
    await asyncio.sleep(0.2)
    begin = datetime.now(UTC)
    stream.send(numbers(3, 5))
    async with reading(stream.producer(start=begin)) as opened:
        items = await opened.take(2)
        assert [(raw.value["n"], raw.position) for raw, _ in items] == [(3, 1), (4, 2)]
