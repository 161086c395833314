"""Fixtures of the tests on topics of Pulsar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.processes.pulsar import ProxiedPulsar, PulsarServer, shared, shared_proxied
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
def proxied_server() -> Iterator[ProxiedPulsar]:
    """Return a server behind a proxy, which a test may kill."""
    proxied = shared_proxied()
    yield proxied
    proxied.proxy.calm()
