"""Streams of RabbitMQ through real processes: triggerers that are killed, the audit, and another database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, until
from support.processes.rabbitmq import RabbitServer
from support.sources.rabbitmq import MakeStream, RabbitStream
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq-streams-outages"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Project, RabbitMQStreams

project = Project("shop")
project.watch("orders", RabbitMQStreams({stream!r}, group="shop", connection={connection!r}))
"""


@pytest.fixture
def deployment(tmp_path: Path, stream: RabbitStream) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path / "first") as deployment:
        deployment.share_connection(stream.connection)
        yield deployment


def project(deployment: Deployment, stream: RabbitStream) -> Path:
    return deployment.project(PROJECT.format(stream=stream.name, connection=stream.connection))


def test_killed_triggerers_store_each_message_once_and_the_audit_balances(deployment: Deployment, stream: RabbitStream) -> None:
    """The watch declares no id: the position makes a second delivery a duplicate."""
    path = project(deployment, stream)
    for first in range(0, 3_000, 1_000):
        stream.send(numbers(first, first + 1_000))
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(first)
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: stream.offset() == 2_999, "all messages are committed")
    assert deployment.count_events() == 3_000
    assert deployment.balanced_stream()["read"] == 3_000


def test_triggerers_killed_around_their_commits_repeat_no_event(deployment: Deployment, stream: RabbitStream) -> None:
    path = project(deployment, stream)
    sent = 0
    for _ in range(4):
        stream.send(numbers(sent, sent + 50))
        sent += 50
        before = stream.offset()
        triggerer = deployment.triggerer(path)
        until(lambda offset=before: stream.offset() not in (None, -1, offset), "a commit of this reader is stored")  # type: ignore[misc]
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: stream.offset() == sent - 1, "all messages are committed")
    assert deployment.count_events() == sent
    assert deployment.audited_stream()["problems"] == []


def test_removed_messages_are_a_gap_of_the_audit(tmp_path: Path, make_stream: MakeStream) -> None:
    stream = make_stream(x_max_length_bytes=20_000, x_stream_max_segment_size_bytes=10_000)
    with Deployment.with_short_leases(tmp_path / "first") as deployment:
        deployment.share_connection(stream.connection)
        path = project(deployment, stream)
        stream.send(numbers(0, 10))
        triggerer = deployment.triggerer(path)
        until(lambda: stream.offset() == 9, "the first messages are committed")
        triggerer.kill()
        for first in range(10, 2_000, 10):
            stream.send(numbers(first, first + 10))
        deployment.triggerer(path)
        until(lambda: (stream.offset() or 0) >= 1_999, "the other messages are committed")
        (problem,) = (str(one["problem"]) for one in deployment.audited_stream()["problems"])
        assert problem.startswith("nothing is recorded after 9 up to ")
        deployment.wait_for_status("of the stream are missing")


def test_another_database_is_rejected(deployment: Deployment, stream: RabbitStream, tmp_path: Path) -> None:
    path = project(deployment, stream)
    stream.send(numbers(0, 10))
    triggerer = deployment.triggerer(path)
    until(lambda: stream.offset() == 9, "the messages are committed")
    triggerer.kill()
    # The mark of the first receipts is stored with a later commit.
    triggerer = deployment.triggerer(path)
    stream.send(numbers(10, 12))
    until(lambda: stream.offset() == 11, "the messages are committed")
    triggerer.kill()
    stream.send(numbers(12, 20))
    with Deployment.with_short_leases(tmp_path / "second") as other:
        other.share_connection(stream.connection)
        other.triggerer(project(other, stream))
        other.wait_for_status("it has another database")
        assert other.count_events() == 0
    assert stream.offset() == 11


def test_a_server_that_is_killed_under_a_triggerer_loses_nothing_and_repeats_no_event(
    tmp_path: Path, make_stream: MakeStream, own_server: RabbitServer
) -> None:
    stream = make_stream(own_server)
    with Deployment.with_short_leases(tmp_path / "first") as deployment:
        deployment.share_connection(stream.connection)
        deployment.triggerer(project(deployment, stream))
        for first in range(0, 600, 300):
            stream.send(numbers(first, first + 300))
            deployment.wait_for_more_events(first)
            own_server.kill()
            own_server.start()
        until(lambda: deployment.count_events() == 600 and (stream.offset() or 0) >= 599, "all messages are stored once and committed")
        deployment.balanced_stream()
