"""A peek at topics shows what a reader would get next, and acknowledges nothing."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.sources.peeks.peek import Peek, PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from headrace.triggers.secrets import get_connection
from support.sources.kit import PATIENCE
from support.sources.pulsar import MakeTopic, PulsarTopic
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("pulsar"), pytest.mark.timeout(2 * PATIENCE)]


async def peeked(topic: PulsarTopic, limit: int = 10, lane: str | None = None, **arguments: Any) -> Peek:
    return await peek_upstream(topic.upstream(**arguments), PeekRequest(limit, lane))


async def test_a_peek_shows_what_the_next_reader_gets_and_acknowledges_nothing(topic: PulsarTopic) -> None:
    topic.send(numbers(0, 5), batch=1)
    first = await peeked(topic)
    assert topic.subscription() is None
    assert [raw.value["n"] for raw in first.messages] == [0, 1, 2, 3, 4]
    assert first.notes == [f"Subscription 'shop' of {topic.name} does not exist yet. These are the first messages of the topic."]
    async with reading(topic.producer()) as stream:
        items = await stream.take(5)
        await stream.advance(items[:2])
        during = await peeked(topic, limit=2)
        await stream.advance(items[2:3])  # the peek has not taken the place of the reader
    expected = [(raw.lane, raw.data, raw.id) for raw, _ in items[2:4]]
    assert [(raw.lane, raw.data, raw.id) for raw in during.messages] == expected  # type: ignore[attr-defined]
    assert not during.notes
    assert topic.backlog() == 2


@pytest.mark.parametrize("parts", [(5,), (2, 5), (1, 3, 4, 5)])
async def test_a_peek_shows_a_batch_until_all_of_it_is_acknowledged(topic: PulsarTopic, parts: tuple[int, ...]) -> None:
    topic.send(numbers(0, 5), batch=5)
    async with reading(topic.producer()) as stream:
        items = await stream.take(5)
        for first, last in pairwise((0, *parts)):
            assert [raw.value["n"] for raw in (await peeked(topic)).messages] == list(range(5))
            await stream.advance(items[first:last])
        assert topic.backlog() == 0
        assert not (await peeked(topic)).messages


async def test_a_peek_at_one_partition(make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    topic.send(numbers(0, 3), 1)
    assert [raw.value["n"] for raw in (await peeked(topic, lane=topic.partition(1))).messages] == [0, 1, 2]
    assert not (await peeked(topic, lane=topic.partition(0))).messages
    with pytest.raises(UpstreamError, match="There is no lane"):
        await peeked(topic, lane="other")


async def test_the_test_of_a_connection_names_the_version(topic: PulsarTopic) -> None:
    text = await asyncio.to_thread(lambda: probe_connection(get_connection(topic.connection)))
    assert text.startswith("Pulsar 4.")
    assert topic.server.address in text
