"""A server that is killed, restarted, emptied or silent, and TLS. These tests kill a server of their own."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.testing.contract.reading import Reading, reading
from support.processes.network import Network
from support.processes.ports import free_port
from support.processes.redis import RedisServer, require
from support.sources.reading import numbers, numbers_of, until, until_in_thread
from support.sources.redis import RedisStream

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("redis-outages")]


async def advance_until_done(opened: Reading, items: list[tuple[Any, Any]]) -> None:
    """Advance as a shared stream does: again after an error that may pass."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await opened.advance(items)
            except StreamError:
                await asyncio.sleep(0.05)


async def test_a_reader_goes_on_after_its_server_was_killed_and_repeats_nothing(own_stream: RedisStream) -> None:
    own_stream.send(numbers(0, 1_000))
    async with reading(own_stream.producer()) as opened:
        items = await opened.take(1_000)
        await opened.advance(items[:500])
        await asyncio.to_thread(own_stream.server.kill)
        await until_in_thread(lambda: "server" in opened.producer.get_errors())
        with pytest.raises(StreamError, match="does not answer"):
            await opened.advance(items[500:600])
        await asyncio.to_thread(own_stream.server.start)
        await asyncio.to_thread(own_stream.send, numbers(1_000, 1_200))
        later = await opened.take(200)
        assert numbers_of(later) == list(range(1_000, 1_200))
        await advance_until_done(opened, [*items[500:], *later])
        assert own_stream.pending() == 0
        assert opened.producer.get_errors() == {}


async def test_kills_during_reads_and_advances_lose_and_repeat_nothing(own_stream: RedisStream) -> None:
    total = 4_000
    arrived: list[int] = []

    async def kill() -> None:
        """Kill the server whenever some entries have arrived, during their advance or the next read."""
        seen: list[int] = [0]
        while len(arrived) < total:
            seen.append(len(arrived))
            await asyncio.to_thread(own_stream.server.kill)
            await asyncio.to_thread(own_stream.server.start)
            await until(lambda: len(arrived) > seen[-1])

    own_stream.send(numbers(0, total))
    async with reading(own_stream.producer()) as opened, asyncio.TaskGroup() as tasks:
        killer = tasks.create_task(kill())
        for _ in range(0, total, 200):
            items = await opened.take(200)
            arrived += numbers_of(items)
            await advance_until_done(opened, items)
        await killer
    assert arrived == list(range(total))
    assert own_stream.pending() == 0
    async with reading(own_stream.producer()) as opened:
        own_stream.send(numbers(total, total + 1))
        assert numbers_of(await opened.take(1)) == [total]


async def test_a_server_that_forgot_acknowledgements_gets_them_again(own_stream: RedisStream) -> None:
    """As after a failover: entries that are answered are pending again."""
    own_stream.send(numbers(0, 10))
    async with reading(own_stream.producer()) as opened:
        items = await opened.take(10)
        saved, state = own_stream.client.dump(own_stream.key), own_stream.client.dump(own_stream.state)
        await opened.advance(items[:6])
        own_stream.client.restore(own_stream.key, 0, saved, replace=True)
        own_stream.client.restore(own_stream.state, 0, state, replace=True)
        await asyncio.to_thread(own_stream.server.kill)
        await asyncio.to_thread(own_stream.server.start)
        await until_in_thread(lambda: own_stream.pending() == 4)
        await advance_until_done(opened, items[6:])
        assert own_stream.pending() == 0


async def test_an_emptied_server_is_told_and_read_on(own_stream: RedisStream) -> None:
    own_stream.send(numbers(0, 10))
    async with reading(own_stream.producer()) as opened:
        items = await opened.take(10)
        own_stream.client.flushall()
        own_stream.send(numbers(10, 12))
        later = await opened.take(2)
        assert numbers_of(later) == [10, 11]
        assert later[0][0].lane != items[0][0].lane
        await opened.advance(items)
        await opened.advance(later)
        assert own_stream.pending() == 0


async def test_a_silent_connection_is_found(own_stream: RedisStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that drops what is sent: no error, no end, nothing arrives."""
    monkeypatch.setattr("headrace.sources.redis.client.ANSWER_SECONDS", 0.5)
    monkeypatch.setattr("headrace.sources.redis.client.BLOCK_SECONDS", 0.3)
    port = int(own_stream.server.address.partition(":")[2])
    network = Network(port, seed=1, silent=30)
    with network.serving() as url:
        own_stream.set_connection(url.replace("http://", "redis://"))
        own_stream.send(numbers(0, 1))
        async with reading(own_stream.producer(lease=600)) as opened:
            await opened.take(1)
            network.mode = "drop"
            await until_in_thread(lambda: "server" in opened.producer.get_errors())
            network.mode = ""
            own_stream.send(numbers(1, 2))
            assert numbers_of(await opened.take(1)) == [1]


async def test_a_server_that_does_not_answer_is_named(own_stream: RedisStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.redis.reader.OPEN_SECONDS", 0.5)
    own_stream.set_connection(f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(StreamError, match="the server does not answer") as raised:
        async with reading(own_stream.producer()) as opened:
            await opened.take(1)
    assert "Is the server running" in (raised.value.hint or "")


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[RedisServer]:
    require("redis")
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout ca.key -out ca.pem",
        "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    ):
        (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        subprocess.run(["openssl", *command.split()], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    server = RedisServer("redis", REDIS_TLS=str(tmp_path))
    yield server
    server.close()


async def test_a_stream_is_read_over_tls_and_an_unknown_certificate_is_refused(tls_server: RedisServer, tmp_path: Path) -> None:
    stream = RedisStream(tls_server)
    stream.send(numbers(0, 3))
    stream.set_connection(f"rediss://{tls_server.address}?ca_certs={tmp_path}/ca.pem")
    async with reading(stream.producer()) as opened:
        items = await opened.take(3)
        await opened.advance(items)
    stream.set_connection(f"rediss://{tls_server.address}")
    with pytest.raises(UpstreamError, match=r"(?i)certificate") as raised:
        async with reading(stream.producer()) as opened:
            await opened.take(1)
    assert "ca_certs" in (raised.value.hint or "")
    stream.close()
