"""A service that is killed while it is read. These tests kill a server of their own."""

from __future__ import annotations

import asyncio
import time

import pytest

from headrace.testing.contract.reading import reading
from support.processes.elasticmq import ElasticMq
from support.sources.reading import advance_until_done, numbers, until, until_in_thread
from support.sources.sqs import MakeQueue, SqsQueue

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("sqs-outages")]


@pytest.fixture
def queue(make_queue: MakeQueue, own_server: ElasticMq) -> SqsQueue:
    return make_queue(server=own_server)


async def test_a_reader_goes_on_after_the_service_was_away_and_delivers_nothing_twice(queue: SqsQueue) -> None:
    queue.send(numbers(0, 200))
    async with reading(queue.producer()) as stream:
        items = await stream.take(200)
        await asyncio.to_thread(queue.server.kill)
        await until(lambda: "queue" in stream.producer.get_errors())
        # For longer than the visibility timeout.
        await until(lambda: all(part.lease.until < time.monotonic() for _, part in items))
        await asyncio.to_thread(queue.server.start)
        await asyncio.to_thread(queue.send, numbers(200, 220))
        # ElasticMQ may not deliver a visible message while the visibility of others is changed: seen for longer than 60 s.
        later = await stream.take(10)
        await advance_until_done(stream, [*items, *later])
        rest = await stream.take(10)
        assert sorted(raw.value["n"] for raw, _ in [*later, *rest]) == list(range(200, 220))
        await advance_until_done(stream, rest)
        await until_in_thread(lambda: queue.count() == (0, 0))
        await until(lambda: not stream.producer.get_errors())


async def test_an_advance_while_the_service_is_away_ends_and_succeeds_later(queue: SqsQueue) -> None:
    queue.send(numbers(0, 100))
    async with reading(queue.producer()) as stream:
        items = await stream.take(100)
        done = {raw.id for raw, _ in items[:60]}
        await asyncio.to_thread(queue.server.kill)
        advance = asyncio.create_task(advance_until_done(stream, items[:60]))
        await until(lambda: "queue" in stream.producer.get_errors() or advance.done())
        assert not advance.done()
        await asyncio.to_thread(queue.server.start)
        await advance
        # A killed ElasticMQ may forget receipts. Then messages are deleted when they come again.
        await until_in_thread(lambda: sum(queue.count()) == 40)
    async with reading(queue.producer()) as stream:
        rest = await stream.take(40)
    assert done.isdisjoint(raw.id for raw, _ in rest)
    assert len({raw.id for raw, _ in rest}) == 40


async def test_a_producer_closes_in_time_while_the_service_is_away(queue: SqsQueue) -> None:
    queue.send(numbers(0, 100))
    async with asyncio.timeout(30), reading(queue.producer()) as stream:
        await stream.take(100)
        await asyncio.to_thread(queue.server.kill)
    await asyncio.to_thread(queue.server.start)
    async with reading(queue.producer()) as stream:
        assert sorted(raw.value["n"] for raw, _ in await stream.take(100)) == list(range(100))
