"""A peek at topics shows what a reader would get next, with or without a reader, and moves no offset."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import MalformedEvent, StreamError, UpstreamError
from headrace.sources.peeks.peek import Peek, PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from headrace.triggers.raw_event import Message
from support.sources.kafka import KafkaTopic, MakeTopic

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("kafka")]


async def peeked(topic: KafkaTopic, limit: int = 10, lane: str | None = None, **arguments: Any) -> Peek:
    return await peek_upstream(topic.upstream(**arguments), PeekRequest(limit, lane))


async def test_a_peek_shows_what_the_next_reader_gets_and_commits_nothing(make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    topic.send([b'{"n": 0}', b'{"n": 1}', None], partition=0, key=b"Ada", headers=[("trace", b"1")])
    topic.send([b"no json"], partition=1)
    first = await peeked(topic)
    assert topic.committed() < 0, "it joined no group"
    async with reading(topic.producer()) as stream:
        items = await stream.take(4)
        await stream.advance([item for item in items if item[1].position == 0])
        during = await peeked(topic)
        await stream.advance([item for item in items if item[0].lane == during.messages[0].lane and item[1].position == 1])
        assert topic.committed() == 2, "the peek has not fenced the reader"
    assert {(raw.lane, raw.position, raw.data) for raw, _ in items} == {(raw.lane, raw.position, raw.data) for raw in first.messages}
    message = first.messages[0]
    assert isinstance(message, Message)
    assert (message.key, message.headers, message.timestamp is not None) == ("Ada", {"trace": "1"}, True)
    assert [raw.position for raw in during.messages] == [1, 2]
    async with reading(topic.producer()) as stream:
        assert [raw.position for raw, _ in await stream.take(1)] == [2]
    with pytest.raises(MalformedEvent, match="Not valid JSON"):
        _ = first.messages[-1].value


async def test_limits_lanes_and_the_start_apply(make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    for partition in range(3):
        topic.send([f'{{"n": {number}}}'.encode() for number in range(50)], partition=partition)
    some = (await peeked(topic, 4)).messages
    assert [raw.position for raw in some] == [0, 1, 0, 0]
    one = (await peeked(topic, 2, f"{topic.name}/1")).messages
    assert [(raw.lane, raw.position) for raw in one] == [(some[2].lane, 0), (some[2].lane, 1)]
    assert (await peeked(topic, start="latest")).messages == []
    assert [raw.position for raw in (await peeked(topic, lane=some[0].lane, start={topic.name: {0: 48}})).messages] == [48, 49]
    with pytest.raises(UpstreamError, match="There is no lane 'other/0'"):
        await peeked(topic, lane="other/0")


async def test_messages_that_the_broker_deleted_are_a_note(topic: KafkaTopic) -> None:
    topic.send([b"1"] * 10)
    async with reading(topic.producer()) as stream:
        await stream.advance((await stream.take(10))[:3])
    topic.server.delete_before(topic.name, 6)
    peek = await peeked(topic)
    assert [raw.position for raw in peek.messages] == [6, 7, 8, 9]
    assert "Messages 3 to 5 are missing" in peek.notes[0]


async def test_a_missing_topic_and_a_cluster_that_does_not_answer_are_named(topic: KafkaTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UpstreamError, match="'missing' does not exist"):
        await peeked(topic, topics="missing")
    monkeypatch.setattr("headrace.sources.peeks.peek.PEEK_SECONDS", 1.0)
    topic.set_connection("127.0.0.1:1")
    with pytest.raises(StreamError):
        await peeked(topic)
