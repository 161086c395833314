"""Messages that are lost: a deleted subscription, a topic that is created again, and messages that expire."""

from __future__ import annotations

import pytest

from headrace.errors import UpstreamError
from headrace.sources.pulsar.producer import PulsarProducer
from headrace.testing.contract.reading import reading
from headrace.triggers.stream_log import LogState, StreamLog
from support.processes.pulsar import path_of
from support.sources.kit import PATIENCE
from support.sources.pulsar import SUBSCRIPTION, MakeTopic, PulsarTopic
from support.sources.reading import numbers, numbers_of, until, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("pulsar"), pytest.mark.timeout(2 * PATIENCE)]


async def look_up(name: str) -> LogState:
    return LogState("log", 1)


def recorded(topic: PulsarTopic, **arguments: str) -> PulsarProducer:
    """Return a producer of a stream with receipts."""
    producer = topic.producer(**arguments)
    producer.log = StreamLog("pulsar:test", LogState("log", 1), look_up)
    return producer


def delete_subscription(topic: PulsarTopic) -> None:
    topic.server.admin("DELETE", f"{path_of(topic.name)}/subscription/{SUBSCRIPTION}")


def expire(topic: PulsarTopic) -> bool:
    """Have the broker expire messages older than a second. Return False if it has none of that age."""
    try:
        topic.server.admin("POST", f"{path_of(topic.name)}/subscription/{SUBSCRIPTION}/expireMessages/1")
    except AssertionError:
        return False
    return True


async def test_a_deleted_subscription_is_reported_and_read_again_with_the_same_ids(topic: PulsarTopic) -> None:
    topic.send(numbers(0, 5))
    async with reading(topic.producer()) as stream:
        items = await stream.take(5)
        await stream.advance(items)
    delete_subscription(topic)
    async with reading(recorded(topic)) as stream:
        again = await stream.take(5)
        assert [raw.id for raw, _ in again] == [raw.id for raw, _ in items]
        assert "Subscription 'shop' of topic" in stream.producer.get_errors()[topic.name]
    async with reading(recorded(topic)) as stream:
        await stream.take(5)
        assert not stream.producer.get_errors()


async def test_a_deleted_subscription_that_begins_at_the_latest_message_is_refused(topic: PulsarTopic) -> None:
    async with reading(topic.producer()) as stream:
        topic.send(numbers(0, 1))
        await stream.advance(await stream.take(1))
    delete_subscription(topic)
    with pytest.raises(UpstreamError, match="Messages may be lost"):
        async with reading(recorded(topic, start="latest")) as stream:
            await stream.take(1)


async def test_a_topic_that_is_created_again_is_reported_and_has_other_ids(make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=1)
    topic.send(numbers(0, 2))
    async with reading(topic.producer()) as stream:
        items = await stream.take(2)
        await stream.advance(items)
    topic.make_again()
    topic.send(numbers(0, 2))
    async with reading(recorded(topic)) as stream:
        again = await stream.take(2)
        assert {raw.id for raw, _ in again}.isdisjoint(raw.id for raw, _ in items)
        assert "is missing, and the topic was read before" in stream.producer.get_errors()[topic.name]


async def test_messages_that_expire_are_reported(make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.pulsar.reader.WATCH_SECONDS", 0.2)
    topic = make_topic()
    async with reading(topic.producer()) as stream:
        topic.send(numbers(0, 1))
        await stream.advance(await stream.take(1))
    topic.send(numbers(1, 6), batch=1)
    async with reading(topic.producer()) as stream:
        assert numbers_of(await stream.take(1)) == [1]
        await until_in_thread(lambda: expire(topic))
        await until(lambda: topic.name in stream.producer.get_errors())
        assert "messages expired before they were acknowledged" in stream.producer.get_errors()[topic.name]
