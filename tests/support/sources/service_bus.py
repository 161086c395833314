"""A queue of a test, or a subscription, with a connection and an upstream of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from headrace.sources.service_bus.producer import ServiceBusProducer
from headrace.sources.service_bus.upstream import ServiceBus
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import Upstream
from support.processes.broker_server import connection_variable
from support.processes.service_bus import ServiceBusServer, shared, url_at

LOCK_SECONDS = 5


class ServiceBusQueue:
    """A queue of a server, by default without sessions, with the shortest locks."""

    def __init__(self, server: ServiceBusServer, *, sessions: int | None = None, **settings: Any) -> None:
        self.server = server
        self.sessions = sessions
        self.name = f"orders-{secrets.token_hex(4)}"
        self._settings = {"lock_seconds": LOCK_SECONDS, "max_delivery_count": 100, "requires_session": sessions is not None} | settings
        self.create()
        self.connection = f"servicebus_{secrets.token_hex(4)}"
        self.set_address(server.address)

    @property
    def path(self) -> str:
        """The path in the control API."""
        return f"queues/{self.name}"

    def create(self) -> None:
        """Create the queue. A server that was killed has forgotten it."""
        self.server.request("PUT", self.path, self._settings)

    def delete(self) -> None:
        """Delete the queue."""
        self.server.request("DELETE", self.path)

    def set_address(self, address: str) -> None:
        """Set the address of the connection."""
        os.environ[connection_variable(self.connection)] = url_at(address)

    def send(self, messages: Sequence[bytes], session: str = "a", **fields: Any) -> None:
        """Send messages, to a session if the queue has sessions."""
        self.server.send(self.path, messages, **({} if self.sessions is None else {"session": session}), **fields)

    def count(self) -> tuple[int, int]:
        """Return the numbers of messages that are available and that are locked."""
        state = self.server.request("GET", self.path)
        return state["active"], state["locked"]

    def upstream(self, **arguments: Any) -> ServiceBus:
        """Return an upstream of the queue."""
        named: dict[str, Any] = {"connection": self.connection, "lock": LOCK_SECONDS, "sessions": self.sessions} | arguments
        return ServiceBus(self.name, **named)

    def producer(self, **arguments: Any) -> ServiceBusProducer:
        """Return a new producer."""
        return self.upstream(**arguments).producer()

    def close(self) -> None:
        """Drop the connection."""
        os.environ.pop(connection_variable(self.connection), None)


MakeQueue = Callable[..., ServiceBusQueue]
"""Creates a queue, by default on the shared server."""


class ServiceBusBroker(Broker):
    """A queue without sessions."""

    lanes: ClassVar[bool] = False
    positions: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    progress: ClassVar[bool] = False

    def __init__(self) -> None:
        self._queue = ServiceBusQueue(shared())

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._queue.send(messages)

    def upstream(self) -> Upstream:
        return self._queue.upstream()

    def close(self) -> None:
        self._queue.close()


class SessionsBroker(Broker):
    """A queue with sessions. A lane is a session."""

    positions: ClassVar[bool] = False
    progress: ClassVar[bool] = False

    def __init__(self) -> None:
        self._queue = ServiceBusQueue(shared(), sessions=20)

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._queue.send(messages, session=lane)

    def upstream(self) -> Upstream:
        return self._queue.upstream()

    def close(self) -> None:
        self._queue.close()
