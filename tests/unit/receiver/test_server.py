"""Connections whose requests do not arrive in time, and too many of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from headrace.receiver import server as module
from headrace.receiver.app import ReceiverApp
from headrace.receiver.endpoint import Endpoint
from headrace.receiver.server import ReceiverServer
from headrace.sources.http.upstream import Http


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[int]:
    endpoint = Endpoint(Http("orders", verify="none", folder=folder))
    server = ReceiverServer(ReceiverApp([endpoint]), lambda stop: nullcontext())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield port
        finally:
            server.stop()
            await task
            await endpoint.inbox.close()


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n", b"POST /hooks/orders HT", b"POST /hooks/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{}"]
)
async def test_a_request_that_does_not_arrive_in_time_loses_its_connection(
    sent: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.2)
    async with serving(tmp_path) as port, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_bytes_between_requests_do_not_keep_a_connection_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.3)
    async with serving(tmp_path) as port, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /hooks/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 202")
        writer.write(b"\r\n")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_more_connections_than_the_maximum_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 2)
    async with serving(tmp_path) as port, asyncio.timeout(30):
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in connections:  # each is served, so that both are counted
            writer.write(b"POST /hooks/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 202")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert (await reader.read()).startswith(b"HTTP/1.1 503")
        for _, one in [*connections, (reader, writer)]:
            one.close()
            await one.wait_closed()
