"""Kafka through real processes: triggerers that are killed, the audit, and a database that is not the one that was read for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, until
from support.sources.kafka import KafkaTopic
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Kafka, Project

project = Project("shop")
project.watch("orders", Kafka({topic!r}, connection={connection!r}, group={topic!r}), id="$.n")
"""


@pytest.fixture
def deployment(tmp_path: Path, topic: KafkaTopic) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path / "first") as deployment:
        deployment.share_connection(topic.connection)
        yield deployment


def project(deployment: Deployment, topic: KafkaTopic) -> Path:
    return deployment.project(PROJECT.format(topic=topic.name, connection=topic.connection))


def test_killed_triggerers_store_each_message_once_and_the_audit_balances(deployment: Deployment, topic: KafkaTopic) -> None:
    path = project(deployment, topic)
    for first in range(0, 6_000, 2_000):
        topic.send(numbers(first, first + 2_000))
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(first)
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: topic.committed() == 6_000, "all messages are committed")
    assert deployment.count_events() == 6_000
    assert deployment.balanced_stream()["read"] == 6_000


def test_messages_that_the_retention_deleted_are_a_gap_of_the_audit(deployment: Deployment, topic: KafkaTopic) -> None:
    path = project(deployment, topic)
    topic.send(numbers(0, 10))
    triggerer = deployment.triggerer(path)
    until(lambda: topic.committed() == 10, "the first messages are committed")
    triggerer.kill()
    topic.send(numbers(10, 100))
    topic.server.delete_before(topic.name, 50)
    deployment.triggerer(path)
    until(lambda: topic.committed() == 100, "the other messages are committed")
    stream = deployment.audited_stream()
    assert [problem["problem"] for problem in stream["problems"]] == ["nothing is recorded after 9 up to 49"]


def test_another_database_is_rejected(deployment: Deployment, topic: KafkaTopic, tmp_path: Path) -> None:
    topic.send(numbers(0, 10))
    triggerer = deployment.triggerer(project(deployment, topic))
    until(lambda: topic.committed() == 10, "the messages are committed")
    triggerer.kill()
    topic.send(numbers(10, 20))
    with Deployment.with_short_leases(tmp_path / "second") as other:
        other.share_connection(topic.connection)
        other.triggerer(project(other, topic))
        other.wait_for_status("it has another database")
        assert other.count_events() == 0
    assert topic.committed() == 10
