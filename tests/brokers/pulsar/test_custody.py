"""Pulsar through real processes: triggerers that are killed, a broker that is killed, and the audit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, until
from support.processes.pulsar import ProxiedPulsar
from support.sources.pulsar import MakeTopic, PulsarTopic
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("pulsar-outages"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Project, Pulsar

project = Project("shop")
project.watch("orders", Pulsar({topic!r}, subscription="shop", connection={connection!r}))
"""


@pytest.fixture
def topic(make_topic: MakeTopic, proxied_server: ProxiedPulsar) -> PulsarTopic:
    return make_topic(server=proxied_server.server)


@pytest.fixture
def deployment(tmp_path: Path, topic: PulsarTopic) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(topic.connection)
        yield deployment


def test_killed_triggerers_and_a_killed_broker_store_each_message_once_and_the_audit_balances(
    deployment: Deployment, topic: PulsarTopic
) -> None:
    path = deployment.project(PROJECT.format(topic=topic.name, connection=topic.connection))
    for first in range(0, 3_000, 1_000):
        topic.send(numbers(first, first + 1_000))
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(first)
        if first == 1_000:
            topic.server.kill()
            topic.server.start()
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: deployment.count_events() == 3_000, "all messages are stored")
    until(lambda: topic.backlog() == 0, "all messages are acknowledged")
    assert deployment.count_events() == 3_000
    until(lambda: deployment.balanced_stream()["read"] >= 3_000, "all answers are recorded")
