from __future__ import annotations

import asyncio
from typing import Final

import pytest

from headrace.core.connection import parse_connection
from headrace.sources.pubsub import client as pubsub
from headrace.sources.pubsub.client import PubSubClient
from support.processes.silent_server import SilentServer, silent_server
from support.sources.reading import until

CONNECT_SECONDS: Final = 0.5
"""A short time limit of the client for an attempt to connect."""
CLOSED_SECONDS: Final = 10.0
"""In which a connection is closed that has the short limit. The default of gRPC is 20 s."""


async def closed_while_it_connects(server: SilentServer, how: str) -> tuple[PubSubClient, asyncio.Future[str | None]]:
    """Return a client that was closed while it connects, and its request, which has ended in one of three ways."""
    connection = parse_connection("pubsub", f"pubsub://{server.address}/shop?emulator=true")
    client = await PubSubClient.create(connection, "orders", 1, "json")
    request = asyncio.ensure_future(client.topic())
    await until(lambda: server.open == 1)
    if how == "cancelled":
        request.cancel()
    if how != "running":
        await asyncio.wait([request])
    await client.aclose()
    await asyncio.wait([request])
    assert request.cancelled() == (how != "timed out")
    return client, request


async def until_closed(server: SilentServer) -> None:
    """Wait until the client has closed its connection."""
    async with asyncio.timeout(CLOSED_SECONDS):
        await until(lambda: server.open == 0)


@pytest.fixture(params=["cancelled", "timed out", "running"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return how the request of a client ends, with a short time limit for the answer where it is to pass."""
    if request.param == "timed out":
        monkeypatch.setattr(pubsub, "ANSWER_SECONDS", 0.2)
    return str(request.param)


async def test_a_closed_client_ends_its_connection_when_the_handshake_is_over(how: str) -> None:
    async with silent_server() as server:
        held = await closed_while_it_connects(server, how)
        server.end_handshakes()
        await until_closed(server)
        assert server.accepted == 1
        del held  # until here, so that the collection of garbage closes nothing


async def test_a_closed_client_ends_its_connection_to_a_server_that_is_silent(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pubsub, "CONNECT_SECONDS", CONNECT_SECONDS)
    async with silent_server() as server:
        held = await closed_while_it_connects(server, how)
        await until_closed(server)
        del held
