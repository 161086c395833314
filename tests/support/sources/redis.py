"""Stream keys of a test, with a connection and an upstream of their own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import Any, ClassVar

from headrace.sources.redis.producer import RedisProducer
from headrace.sources.redis.upstream import RedisStreams
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import Upstream
from support.processes.broker_server import connection_variable
from support.processes.redis import RedisServer

LEASE_SECONDS = 2


class RedisStream:
    """A stream of a server. Its lease is short, so that tests need not wait."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.key = server.create_key()
        self.group = "shop"
        self.connection = f"redis_{secrets.token_hex(4)}"
        self.set_connection(f"redis://{server.address}")

    @property
    def client(self) -> Any:
        """Another program's connection."""
        return self.server.client

    @property
    def state(self) -> str:
        """The key of the state."""
        return f"headrace:{self.group}:{self.key}"

    def set_connection(self, url: str) -> None:
        """Set the connection of the upstream."""
        os.environ[connection_variable(self.connection)] = url

    def send(self, values: Sequence[bytes], key: str | None = None, **arguments: Any) -> list[str]:
        """Add entries, and return their ids."""
        pipeline = self.client.pipeline(transaction=False)
        for value in values:
            pipeline.xadd(key or self.key, {"data": value}, **arguments)
        return list(pipeline.execute())

    def upstream(self, keys: str | Sequence[str] | None = None, **arguments: Any) -> RedisStreams:
        """Return an upstream of the stream, by default of its field `data`."""
        named: dict[str, Any] = {"connection": self.connection, "group": self.group, "payload": "data", "lease": LEASE_SECONDS} | arguments
        return RedisStreams(keys or self.key, **named)

    def producer(self, **arguments: Any) -> RedisProducer:
        """Return a new producer."""
        return self.upstream(**arguments).producer()

    def pending(self) -> int:
        """Return the number of entries that are delivered and not acknowledged."""
        return int(self.client.xpending(self.key, self.group)["pending"])

    def close(self) -> None:
        """Drop the connection."""
        os.environ.pop(connection_variable(self.connection), None)


class RedisBroker(Broker):
    """Streams of its own. A lane is a stream key; all keys that the contract uses are declared."""

    counted: ClassVar[bool] = True
    names = (*"abcde", *(f"lane{number:02}" for number in range(20)))

    def __init__(self, server: RedisServer) -> None:
        self._stream = RedisStream(server)

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        assert lane in self.names
        for start in range(0, len(messages), 1_000):
            self._stream.send(messages[start : start + 1_000], f"{self._stream.key}:{lane}")

    def upstream(self) -> Upstream:
        return self._stream.upstream([f"{self._stream.key}:{name}" for name in self.names])

    def close(self) -> None:
        self._stream.client.delete(*(f"{self._stream.key}:{name}" for name in self.names))
        self._stream.close()
