"""A stream of a test, with a connection and an upstream of its own."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from headrace.sources.nats.producer import NatsProducer
from headrace.sources.nats.subjects import FLOOR_SUFFIX, consumer_name
from headrace.sources.nats.upstream import Nats
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import Upstream
from support.processes.broker_server import connection_variable
from support.processes.nats import NatsServer

LANES = (*"abcde", *(f"lane{number:02}" for number in range(20)))


class NatsStream:
    """A stream of a server."""

    def __init__(self, server: NatsServer, **config: Any) -> None:
        self.server = server
        self.config = config
        self.name = server.create_stream(**config)
        self.connection = f"nats_{secrets.token_hex(4)}"
        self.set_connection(f"nats://{server.address}")

    def set_connection(self, text: str) -> None:
        """Set the connection."""
        os.environ[connection_variable(self.connection)] = text

    def send(self, values: Sequence[bytes], lane: str = "a", **fields: Any) -> None:
        """Send messages to a subject below the name of the stream."""
        self.server.send(f"{self.name}.{lane}", values, **fields)

    def upstream(self, *lanes: str, **arguments: Any) -> Nats:
        """Return an upstream of the whole stream, or of subjects below its name."""
        named: dict[str, Any] = {"connection": self.connection, "stream": self.name, "durable": "shop"} | arguments
        return Nats([f"{self.name}.{lane}" for lane in lanes] or ">", **named)

    def producer(self, *lanes: str, **arguments: Any) -> NatsProducer:
        """Return a new producer of the stream."""
        return self.upstream(*lanes, **arguments).producer()

    def consumer(self, subject: str = ">") -> str:
        """Return the name of a consumer of the upstream."""
        return consumer_name("shop", subject)

    def consumers(self) -> list[str]:
        """Return the names of the consumers of the stream."""
        return sorted(self.server.api(f"CONSUMER.NAMES.{self.name}")["consumers"] or ())

    def floor(self, subject: str = ">") -> int:
        """Return the acknowledged sequence of a consumer, or 0 while it does not exist."""
        info = self.server.api(f"CONSUMER.INFO.{self.name}.{self.consumer(subject)}")
        return int(info["ack_floor"]["stream_seq"]) if "ack_floor" in info else 0

    def begins_at(self) -> int | None:
        """Return the sequence at which the consumer of the whole stream was told to begin, or None."""
        config = self.server.api(f"CONSUMER.INFO.{self.name}.{self.consumer()}")["config"]
        return int(config["opt_start_seq"]) if "opt_start_seq" in config else None

    def leave_floor_consumer(self) -> None:
        """Leave the consumers as a reader does that is killed after it deleted the one of the whole stream."""
        name = self.consumer()
        config = self.server.api(f"CONSUMER.INFO.{self.name}.{name}")["config"]
        config |= {"durable_name": name + FLOOR_SUFFIX, "name": name + FLOOR_SUFFIX}
        answer = self.server.api(f"CONSUMER.DURABLE.CREATE.{self.name}.{name}{FLOOR_SUFFIX}", {"stream_name": self.name, "config": config})
        assert "error" not in answer, answer
        self.server.api(f"CONSUMER.DELETE.{self.name}.{name}")

    def time_of(self, sequence: int) -> str:
        """Return when the server stored a message, to the microsecond."""
        message = self.server.api(f"STREAM.MSG.GET.{self.name}", {"seq": sequence})["message"]
        return f"{message['time'].removesuffix('Z')[:26]}Z"

    async def take_with_other_program(self, consumer: str) -> None:
        """Ask for messages of a consumer as another program does, and keep what arrives."""
        await asyncio.to_thread(self.server.call, self.server.take(self.name, consumer))

    async def end_other_program(self) -> None:
        """End the other program."""
        await asyncio.to_thread(self.server.call, self.server.end_takers())

    def make_again(self) -> None:
        """Delete the stream, and create it again."""
        self.server.delete_stream(self.name)
        self.server.create_stream(**self.config | {"name": self.name})

    def close(self) -> None:
        """Delete the stream and drop the connection."""
        os.environ.pop(connection_variable(self.connection), None)
        if not self.server.is_closed:
            self.server.delete_stream(self.name)


MakeStream = Callable[..., NatsStream]
"""Creates a stream on the shared server of a version."""


class NatsBroker(Broker):
    """A stream of its own, with a subject for each lane that a test names."""

    counted: ClassVar[bool] = True
    retention: ClassVar[str] = "limits"

    def __init__(self, server: NatsServer) -> None:
        self._stream = NatsStream(server, retention=self.retention)

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._stream.send(messages, lane)

    def upstream(self) -> Upstream:
        return self._stream.upstream(*LANES)

    def close(self) -> None:
        self._stream.close()


class WorkQueueBroker(NatsBroker):
    """The same with a work queue, which deletes what is acknowledged."""

    retention: ClassVar[str] = "workqueue"
