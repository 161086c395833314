"""NATS through real processes: triggerers that are killed, the audit, and a database that is not the one that was read for."""

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
from support.sources.kafka import numbers
from support.sources.nats import MakeStream, NatsStream

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("nats"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Nats, Project

project = Project("shop")
project.watch("orders", Nats(stream={stream!r}, durable="shop", connection={connection!r}))
"""


def start(folder: Path, stream: NatsStream) -> Deployment:
    folder.mkdir()
    deployment = Deployment(folder)
    variable = connection_variable(stream.connection)
    deployment._environment[variable] = os.environ[variable]
    return deployment


@pytest.fixture
def deployment(tmp_path: Path, stream: NatsStream) -> Iterator[Deployment]:
    with start(tmp_path / "first", stream) as deployment:
        yield deployment


def project(deployment: Deployment, stream: NatsStream) -> Path:
    return deployment.project(PROJECT.format(stream=stream.name, connection=stream.connection))


def audit(deployment: Deployment) -> Any:
    return json.loads(deployment.cli("audit", "--json").stdout)


def count(deployment: Deployment) -> int:
    return int(deployment.rows("SELECT count(*) FROM events")[0][0])


def has_more(deployment: Deployment, events: int) -> bool:
    return count(deployment) > events


def test_killed_triggerers_store_each_message_once_and_the_audit_balances(deployment: Deployment, stream: NatsStream) -> None:
    """The watch declares no id: the position makes a second delivery a duplicate."""
    path = project(deployment, stream)
    for first in range(0, 6_000, 2_000):
        stream.send(numbers(first, first + 2_000))
        triggerer = deployment.triggerer(path)
        until(partial(has_more, deployment, first), "messages of this reader are stored")
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: stream.floor() == 6_000, "all messages are acknowledged")
    assert count(deployment) == 6_000
    (audited,) = audit(deployment)["streams"]
    assert (audited["read"], audited["problems"]) == (6_000, [])
    assert all(trigger["balanced"] for trigger in audited["triggers"])


@pytest.mark.parametrize("version", ["go"], indirect=True)
def test_removed_messages_are_a_gap_of_the_audit(deployment: Deployment, stream: NatsStream) -> None:
    """A purge moves the acknowledged sequence at the server, so that only the receipts know what is missing."""
    path = project(deployment, stream)
    stream.send(numbers(0, 10))
    triggerer = deployment.triggerer(path)
    until(lambda: stream.floor() == 10, "the first messages are acknowledged")
    triggerer.kill()
    stream.send(numbers(10, 100))
    stream.server.api(f"STREAM.PURGE.{stream.name}", {"seq": 51})
    deployment.triggerer(path)
    until(lambda: stream.floor() == 100, "the other messages are acknowledged")
    (audited,) = audit(deployment)["streams"]
    assert [problem["problem"] for problem in audited["problems"]] == ["nothing is recorded after 10 up to 50"]


@pytest.mark.parametrize("version", ["package"], indirect=True)
def test_another_database_is_rejected(deployment: Deployment, stream: NatsStream, tmp_path: Path) -> None:
    path = project(deployment, stream)
    stream.send(numbers(0, 10))
    deployment.triggerer(path).kill()
    triggerer = deployment.triggerer(path)
    until(lambda: stream.floor() == 10, "the messages are acknowledged")
    triggerer.kill()
    stream.send(numbers(10, 20))
    with start(tmp_path / "second", stream) as other:
        other.triggerer(project(other, stream))
        until(lambda: "it has another database" in other.cli("status", "--json").stdout, "the error is reported")
        assert count(other) == 0
    assert stream.floor() == 10


def test_a_killed_server_is_read_on(tmp_path: Path, make_stream: MakeStream, own_server: Any) -> None:
    stream = make_stream(own_server)
    with start(tmp_path / "first", stream) as deployment:
        path = project(deployment, stream)
        stream.send(numbers(0, 3_000))
        deployment.triggerer(path)
        until(partial(has_more, deployment, 0), "messages are stored")
        own_server.kill()
        own_server.start()
        stream.send(numbers(3_000, 3_100))
        until(lambda: stream.floor() == 3_100, "all messages are acknowledged")
        assert count(deployment) == 3_100
        (audited,) = audit(deployment)["streams"]
        assert audited["problems"] == []
        assert all(trigger["balanced"] for trigger in audited["triggers"])


@pytest.mark.parametrize("version", ["package"], indirect=True)
def test_an_acknowledgement_whose_process_is_killed_around_it_repeats_no_event(deployment: Deployment, stream: NatsStream) -> None:
    path = project(deployment, stream)
    sent = 0
    for _ in range(4):
        stream.send(numbers(sent, sent + 50))
        sent += 50
        triggerer = deployment.triggerer(path)
        before = stream.floor()
        until(lambda floor=before: stream.floor() > floor, "an acknowledgement of this reader is stored")  # type: ignore[misc]
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: stream.floor() == sent, "all messages are acknowledged")
    assert count(deployment) == sent
    (audited,) = audit(deployment)["streams"]
    assert audited["problems"] == []
