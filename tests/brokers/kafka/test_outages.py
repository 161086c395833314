"""A cluster that is killed, does not answer, or loses stored messages. These tests kill a server of their own."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from structlog.testing import capture_logs

from headrace.errors import StreamError, UpstreamError
from headrace.testing.contract.reading import reading
from support.processes.kafka import KafkaServer
from support.processes.ports import free_port
from support.sources.kafka import KafkaTopic, MakeTopic
from support.sources.reading import advance_until_done, numbers, until, until_in_thread

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


async def test_the_report_of_an_outage_ends_without_a_new_message(topic: KafkaTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.kafka.reader.TOPIC_CHECK_SECONDS", 0.5)
    topic.send(numbers(0, 10))
    async with reading(topic.producer()) as stream:
        await stream.take(10)
        with capture_logs() as lines:
            await asyncio.to_thread(topic.server.kill)
            await until(lambda: "brokers" in stream.producer.get_errors())
            await asyncio.to_thread(topic.server.start)
            await until(lambda: "brokers" not in stream.producer.get_errors())
    assert "error of Kafka's client" in [line["event"] for line in lines]


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


def has_committed(topic: KafkaTopic, offset: int) -> bool:
    return topic.committed() == offset


def send_in_two_parts(topic: KafkaTopic) -> int:
    """Send 100 messages, and return the size of the log after the first 50 of them."""
    topic.send(numbers(0, 50))
    size = topic.server.log_size(topic.name)
    topic.send(numbers(50, 100))
    return size


async def test_a_partition_that_was_truncated_and_has_grown_is_refused_when_it_is_opened(topic: KafkaTopic) -> None:
    """The new messages have offsets that are committed: without the epoch of the leader, they would be skipped in silence."""
    size = await asyncio.to_thread(send_in_two_parts, topic)
    async with reading(topic.producer()) as stream:
        await stream.advance(await stream.take(100))
    await asyncio.to_thread(topic.server.lose_end, topic.name, size)
    await asyncio.to_thread(topic.send, numbers(100, 200))
    for _ in range(2):
        with pytest.raises(UpstreamError, match=r"Messages may be lost: .* was truncated.*, and was read up to 99") as raised:
            async with reading(topic.producer()) as stream:
                await stream.take(1)
        assert "another group" in str(raised.value.hint)
    assert topic.committed() == 100
    async with reading(topic.producer(group=f"{topic.group}-2", start={topic.name: {0: 50}})) as stream:
        assert [raw.data for raw, _ in await stream.take(100)] == numbers(100, 200)


async def test_a_partition_that_is_truncated_while_it_is_read_ends_the_stream(topic: KafkaTopic) -> None:
    size = await asyncio.to_thread(send_in_two_parts, topic)
    async with reading(topic.producer()) as stream:
        items = await stream.take(100)
        await stream.advance(items[:60])
        await asyncio.to_thread(topic.server.lose_end, topic.name, size)
        await asyncio.to_thread(topic.send, numbers(100, 200))
        with pytest.raises(UpstreamError, match="was truncated at offset 50, and was read up to 99"):
            await stream.take(1)
    with pytest.raises(UpstreamError, match=r"was truncated.*, and was read up to 59"):
        async with reading(topic.producer()) as stream:
            await stream.take(1)


async def test_the_markers_of_transactions_of_other_leaders_are_no_truncation(topic: KafkaTopic) -> None:
    """Each restart makes another leader. A commit after a marker has no epoch, because the client delivers none for it."""
    for number in range(3):
        first = 10 * number
        await asyncio.to_thread(topic.server.transaction, topic.name, numbers(first, first + 10))
        async with reading(topic.producer()) as stream:
            items = await stream.take(10)
            assert [raw.data for raw, _ in items] == numbers(first, first + 10)
            await stream.advance(items[:5])
        async with reading(topic.producer()) as stream:
            items = await stream.take(5)
            assert [raw.data for raw, _ in items] == numbers(first + 5, first + 10)
            await stream.advance(items)
            await until_in_thread(partial(has_committed, topic, 11 * (number + 1)))
        await asyncio.to_thread(topic.server.kill)
        await asyncio.to_thread(topic.server.start)
