"""Partitions as lanes: several, and new ones while the topic is read."""

from __future__ import annotations

import pytest

from headrace import Pulsar
from headrace.testing.contract.reading import reading
from support.sources.kit import PATIENCE
from support.sources.pulsar import MakeTopic
from support.sources.reading import numbers, numbers_of, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("pulsar"), pytest.mark.timeout(2 * PATIENCE)]


async def test_partitions_that_are_added_are_read_from_their_first_message(make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.pulsar.reader.WATCH_SECONDS", 0.2)
    topic = make_topic(partitions=1)
    async with reading(topic.producer(start="latest")) as stream:
        await until_in_thread(topic.is_read)
        topic.send(numbers(0, 1))
        await stream.advance(await stream.take(1))
        topic.add_partitions(3)
        topic.send(numbers(1, 3), 2)
        items = await stream.take(2)
        assert numbers_of(items) == [1, 2]
        assert {raw.lane for raw, _ in items} == {topic.partition(2)}
        await stream.advance(items[:1])
    topic.add_partitions(4)
    topic.send(numbers(3, 4), 3)
    async with reading(topic.producer(start="latest")) as stream:
        assert sorted(numbers_of(await stream.take(2))) == [2, 3]


async def test_several_topics_are_one_stream(make_topic: MakeTopic) -> None:
    topics = [make_topic(partitions=2), make_topic()]
    topics[0].send(numbers(0, 2), 1)
    topics[1].send(numbers(2, 4))
    upstream = Pulsar([topic.name for topic in topics], subscription="shop", connection=topics[0].connection)
    async with reading(upstream.producer()) as stream:
        items = await stream.take(4)
    assert sorted(numbers_of(items)) == [0, 1, 2, 3]
    assert {raw.lane for raw, _ in items} == {topics[0].partition(1), topics[1].name}
