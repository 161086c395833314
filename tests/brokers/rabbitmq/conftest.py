"""Fixtures of the tests on queues of RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.processes.rabbitmq import RabbitServer, require, shared
from support.sources.rabbitmq import MakeQueue, MakeStream, RabbitQueue, RabbitStream


@pytest.fixture
def make_queue() -> Iterator[MakeQueue]:
    """Return the function that creates a queue on the shared server."""
    queues: list[RabbitQueue] = []

    def make(kind: str = "classic", *, server: RabbitServer | None = None, **arguments: str) -> RabbitQueue:
        queues.append(RabbitQueue(server or shared(), kind, **arguments))
        return queues[-1]

    yield make
    for queue in queues:
        queue.close()


@pytest.fixture
def queue(make_queue: MakeQueue) -> RabbitQueue:
    """Return a classic queue."""
    return make_queue()


@pytest.fixture
def quorum(make_queue: MakeQueue) -> RabbitQueue:
    """Return a quorum queue."""
    return make_queue("quorum")


@pytest.fixture
def make_stream() -> Iterator[MakeStream]:
    """Return the function that creates a stream on the shared server."""
    streams: list[RabbitStream] = []

    def make(server: RabbitServer | None = None, **arguments: Any) -> RabbitStream:
        streams.append(RabbitStream(server or shared(), **arguments))
        return streams[-1]

    yield make
    for stream in streams:
        stream.close()


@pytest.fixture
def stream(make_stream: MakeStream) -> RabbitStream:
    """Return a stream."""
    return make_stream()


@pytest.fixture(scope="session")
def own_server() -> Iterator[RabbitServer]:
    """Return a server that tests may kill. Its consumer timeout is short."""
    require()
    server = RabbitServer(RABBITMQ_CONSUMER_TIMEOUT_MS="4000")
    yield server
    server.close()
