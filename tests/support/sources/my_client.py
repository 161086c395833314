"""The client library of the guide on triggers: a broker with partitions and offsets, shared by all connections of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple


class Message(NamedTuple):
    """One message; offsets count from 0 in each partition."""

    partition: str
    offset: int
    body: bytes


class Server:
    """The messages of one URL, and the next offset to deliver of each partition."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.committed: dict[str, int] = {}

    def send(self, partition: str, bodies: list[bytes]) -> None:
        """Append messages to a partition."""
        first = sum(message.partition == partition for message in self.messages)
        self.messages += [Message(partition, first + number, body) for number, body in enumerate(bodies)]


SERVERS: dict[str, Server] = {}


class Connection:
    """Delivers the messages that were not committed when it was opened, and later ones."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._begin = dict(server.committed)

    async def __aiter__(self) -> AsyncIterator[Message]:
        number = 0
        while True:
            while number < len(self._server.messages):
                message = self._server.messages[number]
                number += 1
                if message.offset >= self._begin.get(message.partition, 0):
                    yield message
            await asyncio.sleep(0.01)

    async def commit(self, partition: str, offset: int) -> None:
        """Count the messages of a partition up to `offset` as done. An older offset changes nothing."""
        self._server.committed[partition] = max(self._server.committed.get(partition, 0), offset + 1)

    async def close(self) -> None:
        """Close the connection."""


async def connect(url: str) -> Connection:
    """Return a new connection."""
    return Connection(SERVERS[url])
