"""Fixtures of the tests on Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.processes.apicurio import Apicurio
from support.processes.apicurio import shared as shared_registry
from support.processes.broker_server import connection_variable
from support.processes.kafka import KafkaServer, require, shared
from support.sources.kafka import KafkaTopic, MakeTopic


@pytest.fixture
def make_topic() -> Iterator[MakeTopic]:
    """Return the function that creates a topic on the shared server."""
    topics: list[KafkaTopic] = []

    def make(partitions: int = 1, server: KafkaServer | None = None, **settings: str) -> KafkaTopic:
        topics.append(KafkaTopic(server or shared("kafka"), partitions, **settings))
        return topics[-1]

    yield make
    for topic in topics:
        topic.close()


@pytest.fixture
def topic(make_topic: MakeTopic) -> KafkaTopic:
    """Return a topic of one partition."""
    return make_topic()


@pytest.fixture(scope="module")
def own_server() -> Iterator[KafkaServer]:
    """Return a server that the tests of a module may kill."""
    require("kafka")
    server = KafkaServer("kafka")
    yield server
    server.close()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Apicurio]:
    """Return the schema registry of all tests, which a test may kill. It is the connection `registry`."""
    registry = shared_registry()
    monkeypatch.setenv(connection_variable("registry"), registry.url)
    yield registry
    registry.start()
