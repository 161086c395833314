"""A server that is killed or stopped while a stream of it is read or advanced. These tests use a server of their own."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress

import pytest

from headrace.errors import StreamEnded, StreamError
from headrace.sources.peeks.peek import PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from support.processes.rabbitmq import RabbitServer
from support.sources.kit import PATIENCE
from support.sources.rabbitmq import MakeStream, RabbitStream
from support.sources.reading import numbers, numbers_of

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq-streams-outages"), pytest.mark.timeout(4 * PATIENCE)]


@pytest.fixture
async def own_stream(make_stream: MakeStream, own_server: RabbitServer) -> RabbitStream:
    """Return a stream of the server that tests may kill."""
    return await asyncio.to_thread(make_stream, own_server)


async def recovered(stream: RabbitStream) -> None:
    """Wait until the server can deliver the messages of the stream. It accepts connections before."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(StreamError):
                await peek_upstream(stream.streams(), PeekRequest(1))
                return
            await asyncio.sleep(0.1)


async def read_to_end(stream: RabbitStream, last: int) -> list[int]:
    """Read and advance up to a number, over openings that fail. A message whose advance failed may be delivered again."""
    seen: list[int] = []
    failed: list[int] = []
    async with asyncio.timeout(PATIENCE):
        while not seen or seen[-1] != last:
            with suppress(StreamError):
                async with reading(stream.reader()) as opened:
                    while not seen or seen[-1] != last:
                        items = await opened.take(1)
                        if numbers_of(items) != failed:
                            seen += numbers_of(items)
                        failed = numbers_of(items)
                        await opened.advance(items)
                        failed = []
    return seen


async def test_a_killed_server_has_the_offset_and_the_birthmark(own_stream: RabbitStream, own_server: RabbitServer) -> None:
    own_stream.send(numbers(0, 200))
    await recovered(own_stream)
    async with reading(own_stream.reader()) as stream:
        items = await stream.take(200)
        await stream.advance(items[:120])
        await asyncio.to_thread(own_server.kill)
        with pytest.raises(StreamError, match="has ended"):
            await stream.take(1)
        with pytest.raises(StreamEnded):
            await stream.advance(items[120:])
    with pytest.raises(StreamError, match="cannot be reached"):
        async with reading(own_stream.reader()) as stream:
            await stream.take(1)
    await asyncio.to_thread(own_server.start)
    own_stream.send(numbers(200, 210))
    await recovered(own_stream)
    assert await read_to_end(own_stream, 209) == list(range(120, 210))
    async with reading(own_stream.reader()) as stream:
        own_stream.send(numbers(210, 211))
        ((raw, _),) = await stream.take(1)
    assert raw.lane == items[0][0].lane


async def test_a_server_killed_at_random_moments_of_advances_loses_and_repeats_no_advanced_message(
    own_stream: RabbitStream, own_server: RabbitServer
) -> None:
    own_stream.send(numbers(0, 2_000))
    done, kills = -1, 0
    ends: list[str] = []
    while kills < 3:
        await recovered(own_stream)
        stop_after = random.randrange(1, 200)
        killing: asyncio.Task[None] | None = None
        try:
            async with reading(own_stream.reader()) as stream:
                items = await stream.take(1)
                first = numbers_of(items)[0]
                # The last advance may have been stored before the server could confirm it.
                assert done + 1 <= first <= done + 2
                while True:
                    await stream.advance(items)
                    done = numbers_of(items)[0]
                    if done - first >= stop_after and killing is None:
                        killing = asyncio.create_task(asyncio.to_thread(own_server.kill))
                    items = await stream.take(1)
        except StreamError as error:
            ends.append(f"after message {done}: {error}")
        assert len(ends) <= kills + 20, ends  # a server that still recovers, or has little processor time, may end the stream
        if killing is not None:
            await killing
            kills += 1
            await asyncio.to_thread(own_server.start)
    rest = await read_to_end(own_stream, 1_999)
    assert rest[0] in (done + 1, done + 2)
    assert rest == list(range(rest[0], 2_000))


async def test_a_silent_server_is_noticed_and_the_producer_closes(own_stream: RabbitStream, own_server: RabbitServer) -> None:
    own_stream.set_connection(f"amqp://guest:guest@{own_server.address}/?heartbeat=1")
    own_stream.send(numbers(0, 3))
    await recovered(own_stream)
    tasks = asyncio.all_tasks()
    os_pid = own_server.pid
    async with reading(own_stream.reader()) as stream:
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
    assert await read_to_end(own_stream, 2) == [0, 1, 2]
