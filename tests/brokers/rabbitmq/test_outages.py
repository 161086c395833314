"""A server that is killed or stopped while it is read, and its consumer timeout. These tests use a server of their own."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import pytest

from headrace.errors import StreamEnded, StreamError
from headrace.testing.contract.reading import reading
from support.processes.rabbitmq import RabbitServer
from support.sources.kit import PATIENCE
from support.sources.rabbitmq import MakeQueue
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq-outages")]

KINDS = ["classic", "quorum"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_killed_server_ends_the_stream_and_delivers_what_was_not_acknowledged(
    make_queue: MakeQueue, own_server: RabbitServer, kind: str
) -> None:
    queue = make_queue(kind, server=own_server)
    queue.send(numbers(0, 200))
    async with reading(queue.producer()) as stream:
        items = await stream.take(200)
        await stream.advance(items[:120])
        await asyncio.to_thread(own_server.kill)
        with pytest.raises(StreamError, match="has ended"):
            await stream.take(1)
        with pytest.raises(StreamEnded):
            await stream.advance(items[120:])
    with pytest.raises(StreamError, match="cannot be reached"):
        async with reading(queue.producer()) as stream:
            await stream.take(1)
    await asyncio.to_thread(own_server.start)
    # Acknowledgements of the last moment may be lost, and an opening may come before a quorum queue has a leader.
    seen: set[int] = set()
    async with asyncio.timeout(PATIENCE):
        while (left := await asyncio.to_thread(queue.ready)) or not set(range(120, 200)) <= seen:
            with suppress(StreamError):
                async with reading(queue.producer()) as stream:
                    again = await stream.take(max(left, 1))
                    seen.update(raw.value["n"] for raw, _ in again)
                    await stream.advance(again)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_held_beyond_the_consumer_timeout_ends_the_stream_by_name(
    make_queue: MakeQueue, own_server: RabbitServer, kind: str
) -> None:
    queue = make_queue(kind, server=own_server)
    queue.send(numbers(0, 3))
    async with reading(queue.producer()) as stream:
        items = await stream.take(3)
        await stream.advance(items[:1])
        with pytest.raises(StreamError, match="not answered within the consumer timeout") as raised:
            await stream.take(1)
        assert "consumer_timeout" in str(raised.value.hint)
        with pytest.raises(StreamEnded):
            await stream.advance(items[1:])
    async with reading(queue.producer()) as stream:
        assert sorted(raw.value["n"] for raw, _ in await stream.take(2)) == [1, 2]


async def test_a_silent_server_is_noticed_and_the_producer_closes(make_queue: MakeQueue, own_server: RabbitServer) -> None:
    queue = make_queue(server=own_server)
    queue.set_connection(f"amqp://guest:guest@{own_server.address}/?heartbeat=1")
    queue.send(numbers(0, 3))
    tasks = asyncio.all_tasks()
    os_pid = own_server.pid
    async with reading(queue.producer()) as stream:
        items = await stream.take(3)
        os.kill(os_pid, signal.SIGSTOP)
        try:
            with pytest.raises(StreamError, match="no heartbeat has arrived"):
                await stream.take(1)
            with pytest.raises(StreamEnded):
                await stream.advance(items)
        finally:
            os.kill(os_pid, signal.SIGCONT)
    assert asyncio.all_tasks() == tasks
    async with reading(queue.producer()) as stream:
        assert [raw.data for raw, _ in await stream.take(3)] == numbers(0, 3)


async def test_a_producer_closes_in_time_beside_a_silent_server(make_queue: MakeQueue, own_server: RabbitServer) -> None:
    queue = make_queue(server=own_server)
    queue.send(numbers(0, 3))
    os_pid = own_server.pid
    tasks = asyncio.all_tasks()
    try:
        async with asyncio.timeout(30), reading(queue.producer()) as stream:
            await stream.take(3)
            os.kill(os_pid, signal.SIGSTOP)
    finally:
        os.kill(os_pid, signal.SIGCONT)
    assert asyncio.all_tasks() == tasks
