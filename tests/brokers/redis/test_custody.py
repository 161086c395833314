"""Redis through real processes: triggerers that are killed, the audit, and trimmed entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, until
from support.processes.redis import RedisServer
from support.sources.reading import numbers
from support.sources.redis import RedisStream

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("redis-outages"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Project, RedisStreams

project = Project("shop")
orders = RedisStreams([{key!r}, "{key}:us"], group="shop", connection={connection!r}, payload="data", lease=2)
project.watch("orders", orders, id="$.n")
"""


@pytest.fixture
def deployment(tmp_path: Path, own_stream: RedisStream) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(own_stream.connection)
        yield deployment


def project(deployment: Deployment, stream: RedisStream) -> Path:
    return deployment.project(PROJECT.format(key=stream.key, connection=stream.connection))


def test_killed_triggerers_and_servers_store_each_entry_once_and_the_audit_balances(
    deployment: Deployment, own_stream: RedisStream, own_server: RedisServer
) -> None:
    path = project(deployment, own_stream)
    for first in range(0, 3_000, 1_000):
        own_stream.send(numbers(first, first + 500))
        own_stream.send(numbers(first + 500, first + 1_000), f"{own_stream.key}:us")
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(first)
        triggerer.kill()
    deployment.triggerer(path)
    own_stream.send(numbers(3_000, 3_500))
    own_server.kill()
    own_server.start()
    until(lambda: deployment.count_events() == 3_500, "all entries are stored")
    until(lambda: own_stream.pending() == 0, "all entries are acknowledged")
    deployment.balanced_stream()
    assert deployment.count_events() == 3_500


def test_trimmed_entries_are_a_gap_of_the_audit(deployment: Deployment, own_stream: RedisStream) -> None:
    path = project(deployment, own_stream)
    own_stream.send(numbers(0, 10))
    triggerer = deployment.triggerer(path)
    until(lambda: deployment.count_events() == 10 and own_stream.pending() == 0, "the entries are stored and acknowledged")
    triggerer.kill()
    own_stream.send(numbers(10, 60), maxlen=10, approximate=False)
    deployment.triggerer(path)
    until(lambda: deployment.count_events() == 20, "the other entries are stored")
    deployment.wait_for_status("Entries are missing: 40 after")
    until(lambda: "nothing is recorded after" in str(deployment.audited_stream()["problems"]), "the audit has a gap")


def test_entries_trimmed_during_a_reading_are_a_gap_of_the_audit(deployment: Deployment, own_stream: RedisStream) -> None:
    path = project(deployment, own_stream)
    own_stream.send(numbers(0, 10))
    deployment.triggerer(path)
    until(lambda: deployment.count_events() == 10 and own_stream.pending() == 0, "the entries are stored and acknowledged")
    pipeline = own_stream.client.pipeline(transaction=True)
    for value in numbers(10, 60):
        pipeline.xadd(own_stream.key, {"data": value}, maxlen=10, approximate=False)
    pipeline.execute()
    until(lambda: deployment.count_events() == 20, "the other entries are stored")
    until(lambda: "nothing is recorded after" in str(deployment.audited_stream()["problems"]), "the audit has a gap")
