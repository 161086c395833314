"""A peek at streams shows what a reader would get next, and changes nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.peeks.peek import Peek, PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from support.processes.ports import free_port
from support.sources.kit import PATIENCE
from support.sources.rabbitmq import MakeStream, RabbitStream
from support.sources.reading import numbers, numbers_of

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq"), pytest.mark.timeout(2 * PATIENCE)]


async def peeked(stream: RabbitStream, *, limit: int = 10, lane: str | None = None, **arguments: Any) -> Peek:
    return await peek_upstream(stream.streams(**arguments), PeekRequest(limit, lane))


async def test_a_peek_shows_what_the_next_reader_gets_and_leaves_the_reader_alone(stream: RabbitStream) -> None:
    stream.send([*numbers(0, 4), b""], headers={"trace": "1"})
    first = await peeked(stream)
    assert await asyncio.to_thread(stream.note) is None  # it has created nothing
    assert await asyncio.to_thread(stream.server.exchanges, stream.name) == []
    async with reading(stream.reader()) as opened:
        items = await opened.take(5)
        await opened.advance(items[:2])
        during = await peeked(stream, limit=2)
        await opened.advance(items[2:3])
    assert [raw.data for raw in first.messages] == [raw.data for raw, _ in items]
    assert {raw.lane for raw in first.messages} == {stream.name}
    assert [(raw.lane, raw.position) for raw in during.messages] == [(items[0][0].lane, 2), (items[0][0].lane, 3)]
    assert [raw.position for raw in (await peeked(stream, lane=stream.name)).messages] == [3, 4]
    async with reading(stream.reader()) as opened:
        assert numbers_of(await opened.take(1)) == [3]


async def test_peeks_while_readers_open_hide_no_offset(stream: RabbitStream) -> None:
    stream.send(numbers(0, 100))
    is_over = False

    async def peek_on() -> None:
        while not is_over:
            await peeked(stream, limit=1)

    peeking = [asyncio.create_task(peek_on()) for _ in range(3)]
    for number in range(10):
        async with reading(stream.reader()) as opened:
            items = await opened.take(1)
            assert numbers_of(items) == [number]
            await opened.advance(items)
    is_over = True
    await asyncio.gather(*peeking)


async def test_the_start_applies_to_a_stream_that_was_not_read(stream: RabbitStream, make_stream: MakeStream) -> None:
    stream.send(numbers(0, 5))
    assert (await peeked(stream, start="latest")).messages == []
    assert [raw.position for raw in (await peeked(stream, start=3)).messages] == [3, 4]
    assert (await peeked(stream, start=7)).messages == []
    assert len((await peeked(stream, start=datetime.now(UTC) - timedelta(days=1))).messages) == 5
    assert (await peeked(make_stream())).messages == []


async def test_what_cannot_be_peeked_is_named(stream: RabbitStream) -> None:
    stream.send(numbers(0, 5))
    with pytest.raises(UpstreamError, match="There is no lane 'other'"):
        await peeked(stream, lane="other")
    with pytest.raises(UpstreamError, match="'missing' cannot be read: the queue does not exist"):
        await peeked(stream, streams="missing")
    stream.set_connection(f"amqp://127.0.0.1:{free_port()}/")
    with pytest.raises(StreamError):
        await peeked(stream)
