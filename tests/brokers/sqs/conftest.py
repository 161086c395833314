"""Fixtures of the tests on queues of SQS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.processes.elasticmq import ElasticMq, require, shared
from support.sources.sqs import MakeQueue, SqsQueue


@pytest.fixture
def make_queue() -> Iterator[MakeQueue]:
    """Return the function that creates a queue on the shared server."""
    queues: list[SqsQueue] = []

    def make(*, fifo: bool = False, server: ElasticMq | None = None, **attributes: str) -> SqsQueue:
        queues.append(SqsQueue(server or shared(), fifo=fifo, **attributes))
        return queues[-1]

    yield make
    for queue in queues:
        queue.close()


@pytest.fixture
def queue(make_queue: MakeQueue) -> SqsQueue:
    """Return a standard queue."""
    return make_queue()


@pytest.fixture
def fifo(make_queue: MakeQueue) -> SqsQueue:
    """Return a FIFO queue."""
    return make_queue(fifo=True)


@pytest.fixture(scope="module")
def own_server() -> Iterator[ElasticMq]:
    """Return a server that the tests of a module may kill."""
    require()
    server = ElasticMq()
    yield server
    server.close()
