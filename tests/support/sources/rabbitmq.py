"""A queue of a test, with a connection and an upstream of its own, and the brokers for the contract suite."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from headrace.sources.rabbitmq.producer import RabbitProducer
from headrace.sources.rabbitmq.streams.producer import StreamsProducer
from headrace.sources.rabbitmq.streams.progress import Names, OffsetNote
from headrace.sources.rabbitmq.streams.upstream import RabbitMQStreams
from headrace.sources.rabbitmq.upstream import RabbitMQ
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import Upstream
from support.processes.broker_server import connection_variable
from support.processes.rabbitmq import RabbitServer

MAX_PREFETCH = 65_535
GROUP = "shop"


class RabbitQueue:
    """A queue of a server, by default a classic one."""

    def __init__(self, server: RabbitServer, kind: str = "classic", **arguments: Any) -> None:
        self.server = server
        self.name = server.create_queue(kind, **arguments)
        self.connection = f"rabbitmq_{secrets.token_hex(4)}"
        self.set_connection(f"amqp://guest:guest@{server.address}/")

    def set_connection(self, url: str) -> None:
        """Set the connection."""
        os.environ[connection_variable(self.connection)] = url

    def send(self, bodies: Sequence[bytes], **properties: Any) -> None:
        """Send messages."""
        self.server.send(self.name, bodies, **properties)

    def upstream(self, **arguments: Any) -> RabbitMQ:
        """Return an upstream of the queue."""
        arguments = {"connection": self.connection} | arguments
        return RabbitMQ(arguments.pop("queues", self.name), **arguments)

    def producer(self, **arguments: Any) -> RabbitProducer:
        """Return a new producer of the queue."""
        return self.upstream(**arguments).producer()

    def ready(self) -> int:
        """Return the number of messages that no reader holds."""
        return self.server.ready(self.name)

    def close(self) -> None:
        """Delete the queue and drop the connection."""
        os.environ.pop(connection_variable(self.connection), None)
        self.server.delete_queue(self.name)


class RabbitStream(RabbitQueue):
    """A stream of a server."""

    def __init__(self, server: RabbitServer, **arguments: Any) -> None:
        super().__init__(server, "stream", **arguments)
        self._arguments = arguments

    def streams(self, **arguments: Any) -> RabbitMQStreams:
        """Return an upstream of the stream."""
        arguments = {"connection": self.connection, "group": GROUP} | arguments
        return RabbitMQStreams(arguments.pop("streams", self.name), **arguments)

    def reader(self, **arguments: Any) -> StreamsProducer:
        """Return a new producer of the stream."""
        return self.streams(**arguments).producer()

    def note(self, group: str = GROUP) -> OffsetNote | None:
        """Return the last note of a group, and leave it in its queue."""
        message = self.server.last_message(Names(group, self.name).notes)
        return None if message is None else OffsetNote.parse(message)

    def offset(self) -> int | None:
        """Return the stored offset of the group."""
        note = self.note()
        return None if note is None else note.offset

    @property
    def notes(self) -> str:
        """The queue of the offset."""
        return Names(GROUP, self.name).notes

    def make_again(self) -> None:
        """Delete the stream, and create it again."""
        self.server.delete_queue(self.name)
        self.server.declare(self.name, "stream", **self._arguments)

    def close(self) -> None:
        super().close()
        self.server.delete_queue(self.notes)


MakeQueue = Callable[..., RabbitQueue]
"""Creates a queue, by default a classic queue on the shared server."""

MakeStream = Callable[..., RabbitStream]
"""Creates a stream, by default on the shared server."""


class ClassicQueueBroker(Broker):
    """Classic queues of its own, one for each lane."""

    positions: ClassVar[bool] = False
    progress: ClassVar[bool] = False
    kind: ClassVar[str] = "classic"

    def __init__(self, server: RabbitServer) -> None:
        self._server = server
        self._queues: dict[str, RabbitQueue] = {}
        self._connection = f"rabbitmq_{secrets.token_hex(4)}"
        os.environ[connection_variable(self._connection)] = f"amqp://guest:guest@{server.address}/"
        for lane in "abcde":
            self._queue(lane)

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._queue(lane).send(messages)

    def upstream(self) -> Upstream:
        names = [queue.name for queue in self._queues.values()]
        return RabbitMQ(names, connection=self._connection, prefetch=MAX_PREFETCH)

    def close(self) -> None:
        del os.environ[connection_variable(self._connection)]
        for queue in self._queues.values():
            queue.close()

    def _queue(self, lane: str) -> RabbitQueue:
        if lane not in self._queues:
            self._queues[lane] = RabbitQueue(self._server, self.kind)
        return self._queues[lane]


class QuorumQueueBroker(ClassicQueueBroker):
    """Quorum queues of its own, one for each lane. What comes again is not in its place."""

    ordered: ClassVar[bool] = False
    kind: ClassVar[str] = "quorum"


class StreamsBroker(Broker):
    """Streams of its own, one for each lane."""

    progress: ClassVar[bool] = False

    def __init__(self, server: RabbitServer) -> None:
        self._server = server
        self._streams: dict[str, RabbitStream] = {}
        self._connection = f"rabbitmq_{secrets.token_hex(4)}"
        os.environ[connection_variable(self._connection)] = f"amqp://guest:guest@{server.address}/"
        for lane in "abcde":
            self._stream(lane)

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._stream(lane).send(messages)

    def upstream(self) -> Upstream:
        names = [stream.name for stream in self._streams.values()]
        return RabbitMQStreams(names, group=GROUP, connection=self._connection, prefetch=MAX_PREFETCH)

    def close(self) -> None:
        del os.environ[connection_variable(self._connection)]
        for stream in self._streams.values():
            stream.close()

    def _stream(self, lane: str) -> RabbitStream:
        if lane not in self._streams:
            self._streams[lane] = RabbitStream(self._server)
        return self._streams[lane]
