"""Kafka through real processes: triggerers that are killed, the audit, and a database that is not the one that was read for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.processes.deployment import Deployment, until
from support.processes.kafka import connection_variable
from support.sources.kafka import KafkaTopic, numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Kafka, Project

project = Project("shop")
project.watch("orders", Kafka({topic!r}, connection={connection!r}, group={topic!r}), id="$.n")
"""


def start(folder: Path, topic: KafkaTopic) -> Deployment:
    folder.mkdir()
    deployment = Deployment(folder)
    variable = connection_variable(topic.connection)
    deployment._environment[variable] = os.environ[variable]
    return deployment


@pytest.fixture
def deployment(tmp_path: Path, topic: KafkaTopic) -> Iterator[Deployment]:
    with start(tmp_path / "first", topic) as deployment:
        yield deployment


def project(deployment: Deployment, topic: KafkaTopic) -> Path:
    return deployment.project(PROJECT.format(topic=topic.name, connection=topic.connection))


def audit(deployment: Deployment) -> Any:
    return json.loads(deployment.cli("audit", "--json").stdout)


def count(deployment: Deployment) -> int:
    return int(deployment.rows("SELECT count(*) FROM events")[0][0])


def has_more(deployment: Deployment, events: int) -> bool:
    return count(deployment) > events


def test_killed_triggerers_store_each_message_once_and_the_audit_balances(deployment: Deployment, topic: KafkaTopic) -> None:
    path = project(deployment, topic)
    for first in range(0, 6_000, 2_000):
        topic.send(numbers(first, first + 2_000))
        triggerer = deployment.triggerer(path)
        until(partial(has_more, deployment, first), "messages of this reader are stored")
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: topic.committed() == 6_000, "all messages are committed")
    assert count(deployment) == 6_000
    (stream,) = audit(deployment)["streams"]
    assert (stream["read"], stream["problems"]) == (6_000, [])
    assert all(trigger["balanced"] for trigger in stream["triggers"])


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
    (stream,) = audit(deployment)["streams"]
    assert [problem["problem"] for problem in stream["problems"]] == ["nothing is recorded after 9 up to 49"]


def test_another_database_is_rejected(deployment: Deployment, topic: KafkaTopic, tmp_path: Path) -> None:
    topic.send(numbers(0, 10))
    triggerer = deployment.triggerer(project(deployment, topic))
    until(lambda: topic.committed() == 10, "the messages are committed")
    triggerer.kill()
    topic.send(numbers(10, 20))
    with start(tmp_path / "second", topic) as other:
        other.triggerer(project(other, topic))
        until(lambda: "it has another database" in other.cli("status", "--json").stdout, "the error is reported")
        assert count(other) == 0
    assert topic.committed() == 10
