"""Fixtures of the tests on topics of Pulsar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.processes.pulsar import PulsarServer, require, shared
from support.sources.pulsar import MakeTopic, PulsarTopic


@pytest.fixture
def make_topic() -> Iterator[MakeTopic]:
    """Return the function that creates a topic on the shared server, or on another one."""
    topics: list[PulsarTopic] = []

    def make(partitions: int = 0, server: PulsarServer | None = None, **options: Any) -> PulsarTopic:
        topics.append(PulsarTopic(server or shared(), partitions, **options))
        return topics[-1]

    yield make
    for topic in topics:
        topic.close()


@pytest.fixture
def topic(make_topic: MakeTopic) -> PulsarTopic:
    """Return a topic without partitions."""
    return make_topic()


@pytest.fixture
def own_server() -> Iterator[PulsarServer]:
    """Return a server that a test may kill."""
    require()
    server = PulsarServer()
    yield server
    server.close()
