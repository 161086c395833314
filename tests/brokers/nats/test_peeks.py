"""A peek at a stream shows what a reader would get next, on both versions of the server, and creates no consumer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.peeks.peek import Peek, PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from headrace.triggers.raw_event import Message
from support.sources.kit import PATIENCE
from support.sources.nats import MakeStream, NatsStream

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("nats"), pytest.mark.timeout(2 * PATIENCE)]


async def peeked(stream: NatsStream, *lanes: str, limit: int = 10, lane: str | None = None, **arguments: Any) -> Peek:
    return await peek_upstream(stream.upstream(*lanes, **arguments), PeekRequest(limit, lane))


async def test_a_peek_shows_what_the_next_reader_gets_and_creates_no_consumer(stream: NatsStream) -> None:
    await asyncio.to_thread(stream.send, [b'{"n": 0}', b'{"n": 1}', b""], headers={"trace": "1", "Trace-Two": "a: b"})
    first = await peeked(stream)
    assert await asyncio.to_thread(stream.consumers) == []
    async with reading(stream.producer()) as opened:
        items = await opened.take(3)
        await opened.advance(items[:1])
        during = await peeked(stream)
        await opened.advance(items[1:2])  # the peek has not fenced the reader
    as_read = [(raw.lane, raw.position, raw.data, raw.key, raw.headers, raw.timestamp) for raw, _ in items]
    assert [
        (raw.lane, raw.position, raw.data, raw.key, raw.headers, raw.timestamp) for raw in first.messages if isinstance(raw, Message)
    ] == as_read
    assert [raw.position for raw in during.messages] == [2, 3]
    assert await asyncio.to_thread(stream.floor) == 2
    async with reading(stream.producer()) as opened:
        assert [raw.position for raw, _ in await opened.take(1)] == [3]


async def test_lanes_are_subjects_and_the_start_applies(stream: NatsStream) -> None:
    for lane in "abab":
        await asyncio.to_thread(stream.send, [b"1"], lane)
    assert [raw.position for raw in (await peeked(stream, "a", "b", limit=3)).messages] == [1, 3, 2]
    assert [raw.position for raw in (await peeked(stream, "a", "b", lane=f"{stream.name}.b")).messages] == [2, 4]
    assert (await peeked(stream, start="latest")).messages == []
    assert [raw.position for raw in (await peeked(stream, start=3)).messages] == [3, 4]
    third = (await peeked(stream)).messages[2]
    assert isinstance(third, Message)
    assert third.timestamp is not None
    positions = [raw.position for raw in (await peeked(stream, start=third.timestamp)).messages]
    assert positions in ([3, 4], [2, 3, 4], [1, 2, 3, 4]), "messages of one millisecond have one time"
    assert (await peeked(stream, start=datetime(2200, 1, 1, tzinfo=UTC))).messages == []
    with pytest.raises(UpstreamError, match="There is no lane 'other'"):
        await peeked(stream, lane="other")


async def test_removed_messages_are_passed(make_stream: MakeStream) -> None:
    """The server counts them as acknowledged; `headrace audit` names them."""
    stream = make_stream(max_msgs=3)
    await asyncio.to_thread(stream.send, [b"1"] * 3)
    async with reading(stream.producer()) as opened:
        await opened.advance((await opened.take(3))[:1])
    await asyncio.to_thread(stream.send, [b"1"] * 3)
    assert [raw.position for raw in (await peeked(stream)).messages] == [4, 5, 6]


async def test_a_work_queue_keeps_its_messages(make_stream: MakeStream) -> None:
    stream = make_stream(retention="workqueue")
    await asyncio.to_thread(stream.send, [b"0", b"1", b"2"])
    async with reading(stream.producer()) as opened:
        await opened.advance((await opened.take(3))[:1])
    assert [raw.data for raw in (await peeked(stream)).messages] == [b"1", b"2"]
    async with reading(stream.producer()) as opened:
        assert [raw.data for raw, _ in await opened.take(2)] == [b"1", b"2"]


async def test_a_missing_stream_and_a_server_that_does_not_answer_are_named(stream: NatsStream) -> None:
    with pytest.raises(UpstreamError, match="'missing' cannot be read"):
        await peek_upstream(stream.upstream(stream="missing"), PeekRequest(1))
    stream.set_connection("nats://127.0.0.1:1")
    with pytest.raises(StreamError):
        await peeked(stream)
