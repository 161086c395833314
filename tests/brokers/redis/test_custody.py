"""Redis through real processes: triggerers that are killed, the audit, and trimmed entries."""

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
from support.processes.redis import RedisServer
from support.sources.redis import RedisStream, numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("redis-outages"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Project, RedisStreams

project = Project("shop")
orders = RedisStreams([{key!r}, "{key}:us"], group="shop", connection={connection!r}, payload="data", lease=2)
project.watch("orders", orders, id="$.n")
"""


@pytest.fixture
def deployment(tmp_path: Path, own_stream: RedisStream) -> Iterator[Deployment]:
    with Deployment(tmp_path) as deployment:
        variable = connection_variable(own_stream.connection)
        deployment._environment[variable] = os.environ[variable]
        yield deployment


def project(deployment: Deployment, stream: RedisStream) -> Path:
    return deployment.project(PROJECT.format(key=stream.key, connection=stream.connection))


def audit(deployment: Deployment) -> Any:
    return json.loads(deployment.cli("audit", "--json").stdout)["streams"][0]


def count(deployment: Deployment) -> int:
    return int(deployment.rows("SELECT count(*) FROM events")[0][0])


def has_more(deployment: Deployment, events: int) -> bool:
    return count(deployment) > events


def test_killed_triggerers_and_servers_store_each_entry_once_and_the_audit_balances(
    deployment: Deployment, own_stream: RedisStream, own_server: RedisServer
) -> None:
    path = project(deployment, own_stream)
    for first in range(0, 3_000, 1_000):
        own_stream.send(numbers(first, first + 500))
        own_stream.send(numbers(first + 500, first + 1_000), f"{own_stream.key}:us")
        triggerer = deployment.triggerer(path)
        until(partial(has_more, deployment, first), "entries of this reader are stored")
        triggerer.kill()
    deployment.triggerer(path)
    own_stream.send(numbers(3_000, 3_500))
    own_server.kill()
    own_server.start()
    until(lambda: count(deployment) == 3_500, "all entries are stored")
    until(lambda: own_stream.pending() == 0, "all entries are acknowledged")
    stream = audit(deployment)
    assert stream["problems"] == []
    assert all(trigger["balanced"] for trigger in stream["triggers"])
    assert count(deployment) == 3_500


def test_trimmed_entries_are_a_gap_of_the_audit(deployment: Deployment, own_stream: RedisStream) -> None:
    path = project(deployment, own_stream)
    own_stream.send(numbers(0, 10))
    triggerer = deployment.triggerer(path)
    until(lambda: count(deployment) == 10 and own_stream.pending() == 0, "the entries are stored and acknowledged")
    triggerer.kill()
    own_stream.send(numbers(10, 60), maxlen=10, approximate=False)
    deployment.triggerer(path)
    until(lambda: count(deployment) == 20, "the other entries are stored")
    until(lambda: "Entries are missing: 40 after" in deployment.cli("status", "--json").stdout, "the loss is reported")
    until(lambda: "nothing is recorded after" in str(audit(deployment)["problems"]), "the audit has a gap")


def test_entries_trimmed_during_a_reading_are_a_gap_of_the_audit(deployment: Deployment, own_stream: RedisStream) -> None:
    path = project(deployment, own_stream)
    own_stream.send(numbers(0, 10))
    deployment.triggerer(path)
    until(lambda: count(deployment) == 10 and own_stream.pending() == 0, "the entries are stored and acknowledged")
    pipeline = own_stream.client.pipeline(transaction=True)
    for value in numbers(10, 60):
        pipeline.xadd(own_stream.key, {"data": value}, maxlen=10, approximate=False)
    pipeline.execute()
    until(lambda: count(deployment) == 20, "the other entries are stored")
    until(lambda: "nothing is recorded after" in str(audit(deployment)["problems"]), "the audit has a gap")
