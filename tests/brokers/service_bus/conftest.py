"""Fixtures of the tests on the fake of Service Bus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.processes.service_bus import shared
from support.sources.service_bus import MakeQueue, ServiceBusQueue


@pytest.fixture
def make_queue() -> Iterator[MakeQueue]:
    """Return a function that creates queues."""
    queues: list[ServiceBusQueue] = []

    def make(**settings: Any) -> ServiceBusQueue:
        queues.append(ServiceBusQueue(shared(), **settings))
        return queues[-1]

    yield make
    for queue in queues:
        queue.close()


@pytest.fixture
def queue(make_queue: MakeQueue) -> ServiceBusQueue:
    """Return a queue without sessions."""
    return make_queue()


@pytest.fixture
def sessions(make_queue: MakeQueue) -> ServiceBusQueue:
    """Return a queue with sessions, of which 4 are read at once."""
    return make_queue(sessions=4)
