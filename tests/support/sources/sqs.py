"""A queue of a test, with a connection and an upstream of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from headrace.sources.sqs.producer import SqsProducer
from headrace.sources.sqs.upstream import SQS
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import Upstream
from support.processes.broker_server import connection_variable
from support.processes.elasticmq import ElasticMq

VISIBILITY_SECONDS = 3


class SqsQueue:
    """A queue of a server. Its timeouts are short, so that tests need not wait."""

    def __init__(self, server: ElasticMq, *, fifo: bool = False, **attributes: str) -> None:
        self.server = server
        self.name = server.create_queue(fifo=fifo, **attributes)
        self.connection = f"sqs_{secrets.token_hex(4)}"
        self.set_address(server.address)

    def set_address(self, address: str) -> None:
        """Set the address of the connection."""
        os.environ[connection_variable(self.connection)] = f"sqs://x:y@{address}?region=elasticmq&scheme=http"

    def send(self, bodies: Sequence[str | bytes], group: str = "g", **attributes: Any) -> None:
        """Send messages."""
        self.server.send(self.name, [body.decode() if isinstance(body, bytes) else body for body in bodies], group, attributes)

    def upstream(self, **arguments: Any) -> SQS:
        """Return an upstream of the queue."""
        named: dict[str, Any] = {"connection": self.connection, "visibility": VISIBILITY_SECONDS, "wait": 1} | arguments
        return SQS(self.name, **named)

    def producer(self, **arguments: Any) -> SqsProducer:
        """Return a new producer of the queue."""
        return self.upstream(**arguments).producer()

    def count(self) -> tuple[int, int]:
        """Return the number of messages that are visible, and of those that readers hold."""
        return self.server.count(self.name)

    def close(self) -> None:
        """Delete the queue and drop the connection."""
        os.environ.pop(connection_variable(self.connection), None)
        self.server.delete_queue(self.name)


MakeQueue = Callable[..., SqsQueue]
"""Creates a queue, by default a standard queue on the shared server."""


class StandardQueueBroker(Broker):
    """A standard queue of its own."""

    lanes: ClassVar[bool] = False
    positions: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    progress: ClassVar[bool] = False

    def __init__(self, server: ElasticMq) -> None:
        self._queue = SqsQueue(server)

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._queue.send(messages)

    def upstream(self) -> Upstream:
        return self._queue.upstream()

    def close(self) -> None:
        self._queue.close()


class FifoQueueBroker(Broker):
    """A FIFO queue of its own. A lane is a message group."""

    positions: ClassVar[bool] = False
    unbounded: ClassVar[bool] = False
    progress: ClassVar[bool] = False

    def __init__(self, server: ElasticMq) -> None:
        self._queue = SqsQueue(server, fifo=True)

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._queue.send(messages, group=lane)

    def upstream(self) -> Upstream:
        return self._queue.upstream()

    def close(self) -> None:
        self._queue.close()
