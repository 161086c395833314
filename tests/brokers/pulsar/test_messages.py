"""Messages as raw events: their metadata, batches, chunks and messages without a value, where reading begins, and how much is held."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from headrace.testing.contract.reading import opened, reading
from support.sources.kit import PATIENCE
from support.sources.pulsar import MakeTopic, PulsarTopic
from support.sources.reading import items_of, numbers, numbers_of, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("pulsar"), pytest.mark.timeout(2 * PATIENCE)]


async def test_a_message_has_its_key_properties_times_and_id(topic: PulsarTopic) -> None:
    topic.send([b'{"n": 1}'], partition_key="ada", event_timestamp=5, properties={"traceparent": "00-1", "é": "ü"})
    async with reading(topic.producer()) as stream:
        ((raw, payload),) = await stream.take(1)
        assert stream.producer.get_position(payload) is None
    assert (raw.value, raw.key, raw.lane, raw.delivery) == ({"n": 1}, "ada", topic.name, None)
    assert raw.headers == {"traceparent": "00-1", "é": "ü", "event-time": "5"}
    assert abs(datetime.now(UTC) - raw.timestamp) < timedelta(minutes=1)
    async with reading(topic.producer()) as stream:
        ((again, _),) = await stream.take(1)
    assert again.id == raw.id


async def test_a_batch_is_acknowledged_in_part(topic: PulsarTopic) -> None:
    topic.send(numbers(0, 10), batch=10)
    async with reading(topic.producer()) as stream:
        items = await stream.take(10)
        assert len({raw.id for raw, _ in items}) == 10
        await stream.advance(items[:4])
    async with reading(topic.producer()) as stream:
        again = await stream.take(6)
        assert [raw.id for raw, _ in again] == [raw.id for raw, _ in items[4:]]
        await stream.producer.advance(items_of(again, failed=[7]))
    async with reading(topic.producer()) as stream:
        assert numbers_of(await stream.take(3)) == [7, 8, 9]


async def test_a_chunked_message_is_whole_and_is_acknowledged_with_all_its_chunks(topic: PulsarTopic) -> None:
    large = b'"' + b"x" * 3_000_000 + b'"'
    topic.send([large, b"1"], chunked=True)
    async with reading(topic.producer()) as stream:
        items = await stream.take(2)
        assert [raw.data for raw, _ in items] == [large, b"1"]
        await stream.advance(items[:1])
    assert topic.backlog() == 1
    async with reading(topic.producer()) as stream:
        assert [raw.data for raw, _ in await stream.take(1)] == [b"1"]


async def test_a_message_without_a_value_is_null(topic: PulsarTopic) -> None:
    topic.send([None, b'"text"'], partition_key="ada", batch=1)
    async with reading(topic.producer()) as stream:
        assert [(raw.value, raw.key) for raw, _ in await stream.take(2)] == [(None, "ada"), ("text", "ada")]


async def test_the_first_reading_begins_at_the_latest_message(make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    topic.send(numbers(0, 5), 0)
    async with reading(topic.producer(start="latest")) as stream:
        await until_in_thread(topic.is_read)
        topic.send(numbers(5, 7), 1)
        items = await stream.take(2)
        assert numbers_of(items) == [5, 6]
        await stream.advance(items[:1])
    async with reading(topic.producer(start="earliest")) as stream:  # the subscription goes on where it was
        assert numbers_of(await stream.take(1)) == [6]


async def test_the_first_reading_begins_at_a_time(topic: PulsarTopic) -> None:
    topic.send(numbers(0, 3))
    moment = time.time() + 0.01
    await until_in_thread(lambda: time.time() > moment)
    topic.send(numbers(3, 5))
    async with reading(topic.producer(start=datetime.fromtimestamp(moment, UTC))) as stream:
        assert numbers_of(await stream.take(2)) == [3, 4]


async def test_a_stream_that_takes_nothing_holds_a_limited_number_of_messages(topic: PulsarTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.inbox.MAX_MESSAGES", 10)
    topic.send(numbers(0, 200), batch=1)
    producer = topic.producer(receiver_queue_size=20)
    async with opened(producer) as stream:
        taken = [await anext(stream)]
        await until_in_thread(lambda: (topic.subscription() or {})["consumers"][0]["availablePermits"] <= 0)
        assert (topic.subscription() or {})["msgOutCounter"] <= 60
        taken += [await anext(stream) for _ in range(199)]
    await producer.aclose()
    assert numbers_of(taken) == list(range(200))
