"""The connections that a receiver or sender of the library leaves open."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.sources.service_bus.library import Connections


class Client:
    """Opens a connection, as the client of the library does, and forgets it when it closes."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self._failure = failure
        self._connection: Any = None
        self.transports: list[asyncio.Event] = []

    async def open_async(self, connection: Any = None) -> None:
        del connection
        self.transports.append(asyncio.Event())
        writer = SimpleNamespace(transport=SimpleNamespace(abort=self.transports[-1].set))
        self._connection = SimpleNamespace(_transport=SimpleNamespace(writer=writer))
        if self._failure is not None:
            raise self._failure


class Handler:
    """Creates a client for each connection, as a receiver of the library does."""

    def __init__(self, *clients: Client) -> None:
        self._clients = [*clients]
        self._handler: Client | None = None

    def _create_handler(self, auth: Any) -> None:
        del auth
        self._handler = self._clients.pop(0)

    async def connect(self) -> None:
        self._create_handler(None)
        assert self._handler is not None
        await self._handler.open_async()


@pytest.mark.parametrize("failure", [None, OSError("reset"), asyncio.CancelledError()])
async def test_connections_are_cut_also_after_the_library_has_dropped_them(failure: BaseException | None) -> None:
    clients = [Client(failure), Client()]
    handler = Handler(*clients)
    connections = Connections(handler)
    if failure is None:
        await handler.connect()
    else:
        with pytest.raises(type(failure)):
            await handler.connect()
    clients[0]._connection = handler._handler = None
    await handler.connect()
    connections.cut()
    assert all(transport.is_set() for client in clients for transport in client.transports)


async def test_a_connection_that_is_being_opened_is_cut() -> None:
    client = Client()
    handler = Handler(client)
    connections = Connections(handler)
    handler._create_handler(None)
    connections.cut()
    opening = asyncio.ensure_future(client.open_async())
    await opening
    connections.cut()
    assert client.transports[0].is_set()
