"""Kinesis through real processes: triggerers that are killed, the audit, and a database that is not the one that was read for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.sources.kinesis.lanes import LOST_POSITIONS
from support.processes.deployment import Deployment, until
from support.sources.kinesis import KinesisStream
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kinesis-custody"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Kinesis, Project

project = Project("shop")
project.watch("orders", Kinesis({stream!r}, group="shop", connection={connection!r}, interval=0.2))
"""
SHARD = "shardId-000000000000"


@pytest.fixture
def deployment(tmp_path: Path, stream: KinesisStream) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path / "first") as deployment:
        deployment.share_connection(stream.connection)
        yield deployment


def project(deployment: Deployment, stream: KinesisStream) -> Path:
    return deployment.project(PROJECT.format(stream=stream.name, connection=stream.connection))


def test_killed_triggerers_store_each_record_once_and_the_audit_balances(deployment: Deployment, stream: KinesisStream) -> None:
    path = project(deployment, stream)
    for first in range(0, 2_000, 1_000):
        stream.send(numbers(first, first + 1_000))
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(first)
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: stream.stored() == 2_000, "all records are advanced")
    assert deployment.count_events() == 2_000
    assert deployment.balanced_stream()["read"] == 2_000


def test_lost_records_are_a_gap_of_the_audit_and_another_database_is_rejected(
    deployment: Deployment, stream: KinesisStream, tmp_path: Path
) -> None:
    path = project(deployment, stream)
    stream.send(numbers(0, 10))
    triggerer = deployment.triggerer(path)
    until(lambda: stream.stored() == 10, "the first records are advanced")
    triggerer.kill()
    stream.send(numbers(10, 30))
    stream.server.control("trim", stream.name, 25)
    stream.set_times(SHARD, int((time.time() - 25 * 3_600) * 1_000))
    triggerer = deployment.triggerer(path)
    until(lambda: stream.stored() == 15 + LOST_POSITIONS, "the other records are advanced")
    problems = [problem["problem"] for problem in deployment.audited_stream()["problems"]]
    assert problems == [f"nothing is recorded after 10 up to {10 + LOST_POSITIONS}"]
    triggerer.kill()
    with Deployment.with_short_leases(tmp_path / "second") as other:
        other.share_connection(stream.connection)
        other.triggerer(project(other, stream))
        other.wait_for_status("it has another database")
        assert other.count_events() == 0
