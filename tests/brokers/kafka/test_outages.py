"""A cluster that is killed, or does not answer. These tests kill a server of their own."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import StreamError
from headrace.testing.contract.reading import reading
from support.processes.kafka import KafkaServer
from support.processes.ports import free_port
from support.sources.kafka import KafkaTopic, MakeTopic
from support.sources.reading import advance_until_done, numbers, until

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka-outages")]


@pytest.fixture
def topic(make_topic: MakeTopic, own_server: KafkaServer) -> KafkaTopic:
    return make_topic(server=own_server)


async def test_a_reader_goes_on_after_its_broker_was_killed_and_repeats_nothing(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 1_000))
    async with reading(topic.producer()) as stream:
        items = await stream.take(1_000)
        await stream.advance(items[:500])
        await asyncio.to_thread(topic.server.kill)
        await until(lambda: "brokers" in stream.producer.get_errors())
        await asyncio.to_thread(topic.server.start)
        await asyncio.to_thread(topic.send, numbers(1_000, 1_200))
        later = await stream.take(200)
        assert [raw.data for raw, _ in later] == numbers(1_000, 1_200)
        await advance_until_done(stream, [*items[500:], *later])
        assert topic.committed() == 1_200
        assert "brokers" not in stream.producer.get_errors()


async def test_an_advance_while_the_broker_is_away_ends_and_succeeds_later(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 100))
    async with reading(topic.producer()) as stream:
        items = await stream.take(100)
        await asyncio.to_thread(topic.server.kill)
        advance = asyncio.create_task(advance_until_done(stream, items[:60]))
        await until(lambda: "brokers" in stream.producer.get_errors() or advance.done())
        assert not advance.done()
        await asyncio.to_thread(topic.server.start)
        await advance
        assert topic.committed() == 60


async def test_a_producer_closes_in_time_while_the_broker_is_away(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 100))
    producer = topic.producer()
    async with reading(producer) as stream:
        await stream.take(100)
        await asyncio.to_thread(topic.server.kill)
    await asyncio.to_thread(topic.server.start)
    async with reading(topic.producer()) as stream:
        assert [raw.data for raw, _ in await stream.take(100)] == numbers(0, 100)


async def test_a_cluster_that_does_not_answer_is_named(topic: KafkaTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.kafka.client.OPEN_SECONDS", 2.0)
    topic.set_connection(f"127.0.0.1:{free_port()}")
    with pytest.raises(StreamError, match="the cluster does not answer") as raised:
        async with reading(topic.producer()) as stream:
            await stream.take(1)
    assert raised.value.hint is not None
