"""A server that is killed or stopped while it is read. These tests use a server of their own."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from headrace.errors import StreamEnded, StreamError
from headrace.sources.mqtt import client as mqtt_client
from headrace.testing.contract.reading import reading
from support.processes.mosquitto import MosquittoServer
from support.sources.mqtt import MakeSession
from support.sources.reading import numbers, numbers_of

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("mqtt-outages")]


async def test_a_killed_server_ends_the_stream_and_delivers_what_was_not_acknowledged(
    make_session: MakeSession, own_server: MosquittoServer
) -> None:
    session = make_session(own_server)
    session.send(numbers(0, 100))
    async with reading(session.producer()) as stream:
        items = await stream.take(100)
        await stream.advance(items[:60])
        await asyncio.to_thread(own_server.kill)
        with pytest.raises(StreamError, match="has ended"):
            await stream.take(1)
        with pytest.raises(StreamEnded):
            await stream.advance(items[60:])
    with pytest.raises(StreamError, match="cannot be reached"):
        async with reading(session.producer()) as stream:
            await stream.take(1)
    await asyncio.to_thread(own_server.start)
    async with reading(session.producer()) as stream:
        again = numbers_of(await stream.take(40))
        while again[-1] != 99:
            again += numbers_of(await stream.take(1))
    assert again == list(range(again[0], 100))
    assert again[0] <= 60


async def test_a_server_that_is_stopped_in_order_ends_the_stream(make_session: MakeSession, own_server: MosquittoServer) -> None:
    session = make_session(own_server)
    session.send(numbers(0, 10))
    async with reading(session.producer()) as stream:
        items = await stream.take(10)
        await stream.advance(items[:5])
        await asyncio.to_thread(own_server.restart)
        with pytest.raises(StreamError, match="has ended"):
            await stream.take(1)
    async with reading(session.producer()) as stream:
        assert numbers_of(await stream.take(5)) == list(range(5, 10))


async def test_a_silent_server_is_noticed_and_the_producer_closes(make_session: MakeSession, own_server: MosquittoServer) -> None:
    session = make_session(own_server)
    session.set_connection(f"mqtt://{own_server.address}?keepalive=1")
    session.send(numbers(0, 3))
    tasks = asyncio.all_tasks()
    pid = own_server.pid
    async with reading(session.producer()) as stream:
        items = await stream.take(3)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StreamError, match="has ended"):
                await stream.take(1)
            with pytest.raises(StreamEnded):
                await stream.advance(items)
        finally:
            os.kill(pid, signal.SIGCONT)
    assert asyncio.all_tasks() == tasks
    async with reading(session.producer()) as stream:
        assert numbers_of(await stream.take(3)) == [0, 1, 2]


async def test_an_advance_that_is_not_answered_ends_the_stream(
    make_session: MakeSession, own_server: MosquittoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_client, "ANSWER_SECONDS", 0.5)
    session = make_session(own_server)
    session.send(numbers(0, 3))
    pid = own_server.pid
    async with reading(session.producer()) as stream:
        items = await stream.take(3)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StreamEnded, match="no answer after"):
                await stream.advance(items)
            with pytest.raises(StreamError, match="no answer after"):
                await stream.take(1)
        finally:
            os.kill(pid, signal.SIGCONT)


async def test_a_producer_closes_in_time_beside_a_silent_server(make_session: MakeSession, own_server: MosquittoServer) -> None:
    session = make_session(own_server)
    session.send(numbers(0, 3))
    pid = own_server.pid
    tasks = asyncio.all_tasks()
    try:
        async with asyncio.timeout(30), reading(session.producer()) as stream:
            await stream.take(3)
            os.kill(pid, signal.SIGSTOP)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert asyncio.all_tasks() == tasks
