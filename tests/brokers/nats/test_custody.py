"""NATS through real processes: triggerers that are killed, the audit, and a database that is not the one that was read for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.processes.deployment import Deployment, until
from support.sources.nats import MakeStream, NatsStream
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("nats-custody"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Nats, Project

project = Project("shop")
project.watch("orders", Nats(stream={stream!r}, durable="shop", connection={connection!r}))
"""


@pytest.fixture
def deployment(tmp_path: Path, stream: NatsStream) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path / "first") as deployment:
        deployment.share_connection(stream.connection)
        yield deployment


def project(deployment: Deployment, stream: NatsStream) -> Path:
    return deployment.project(PROJECT.format(stream=stream.name, connection=stream.connection))


def test_killed_triggerers_store_each_message_once_and_the_audit_balances(deployment: Deployment, stream: NatsStream) -> None:
    """The watch declares no id: the position makes a second delivery a duplicate."""
    path = project(deployment, stream)
    for first in range(0, 6_000, 2_000):
        stream.send(numbers(first, first + 2_000))
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(first)
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: stream.floor() == 6_000, "all messages are acknowledged")
    assert deployment.count_events() == 6_000
    assert deployment.balanced_stream()["read"] == 6_000


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
    audited = deployment.audited_stream()
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
    with Deployment.with_short_leases(tmp_path / "second") as other:
        other.share_connection(stream.connection)
        other.triggerer(project(other, stream))
        other.wait_for_status("it has another database")
        assert other.count_events() == 0
    assert stream.floor() == 10


def test_a_killed_server_is_read_on(tmp_path: Path, make_stream: MakeStream, own_server: Any) -> None:
    stream = make_stream(own_server)
    with Deployment.with_short_leases(tmp_path / "first") as deployment:
        deployment.share_connection(stream.connection)
        path = project(deployment, stream)
        stream.send(numbers(0, 3_000))
        deployment.triggerer(path)
        deployment.wait_for_more_events(0)
        own_server.kill()
        own_server.start()
        stream.send(numbers(3_000, 3_100))
        until(lambda: stream.floor() == 3_100, "all messages are acknowledged")
        assert deployment.count_events() == 3_100
        deployment.balanced_stream()


@pytest.mark.parametrize("version", ["package"], indirect=True)
def test_an_acknowledgement_whose_process_is_killed_around_it_repeats_no_event(deployment: Deployment, stream: NatsStream) -> None:
    path = project(deployment, stream)
    sent = 0
    for _ in range(4):
        stream.send(numbers(sent, sent + 50))
        sent += 50
        before = stream.floor()
        triggerer = deployment.triggerer(path)
        until(lambda floor=before: stream.floor() > floor, "an acknowledgement of this reader is stored")  # type: ignore[misc]
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: stream.floor() == sent, "all messages are acknowledged")
    assert deployment.count_events() == sent
    audited = deployment.audited_stream()
    assert audited["problems"] == []
