"""RabbitMQ through real processes: triggerers that are killed, and the audit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, until
from support.processes.rabbitmq import RabbitServer
from support.sources.rabbitmq import MakeQueue, RabbitQueue
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq-outages"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Project, RabbitMQ

project = Project("shop")
project.watch("orders", RabbitMQ({queue!r}, connection={connection!r}))
"""


@pytest.fixture(params=["classic", "quorum"])
def queue(make_queue: MakeQueue, request: pytest.FixtureRequest) -> RabbitQueue:
    return make_queue(request.param)


@pytest.fixture
def deployment(tmp_path: Path, queue: RabbitQueue) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(queue.connection)
        yield deployment


def is_empty(queue: RabbitQueue) -> bool:
    details = queue.server.details(queue.name)
    return details.get("messages") == 0 and queue.ready() == 0


def test_killed_triggerers_store_each_message_once_and_the_audit_balances(deployment: Deployment, queue: RabbitQueue) -> None:
    """The watch declares no id: that of the message makes a second delivery a duplicate."""
    path = deployment.project(PROJECT.format(queue=queue.name, connection=queue.connection))
    for first in range(0, 600, 200):
        queue.send([*numbers(first, first + 199), b"no json"])
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(deployment.count_events())
        triggerer.kill()
    queue.send([b'{"n":600}'], message_id="twice")
    queue.send([b'{"n":600}'], message_id="twice")
    queue.server.send_without_id(queue.name, b'{"n":601}')
    deployment.triggerer(path)
    until(lambda: deployment.count_events() == 598 and is_empty(queue), "all messages are acknowledged, duplicates too")
    assert deployment.balanced_stream()["read"] >= 603
    letters = json.loads(deployment.cli("dead-letters", "list", "--json").stdout)
    found = letters["dead_letters"] if isinstance(letters, dict) else letters
    assert len(found) == 4
    assert sum("neither a position nor an id of the message" in json.dumps(letter) for letter in found) == 1


def test_a_server_that_is_killed_under_a_triggerer_loses_nothing_and_repeats_no_event(
    tmp_path: Path, make_queue: MakeQueue, own_server: RabbitServer
) -> None:
    queue = make_queue(server=own_server)
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(queue.connection)
        deployment.triggerer(deployment.project(PROJECT.format(queue=queue.name, connection=queue.connection)))
        for first in range(0, 600, 300):
            queue.send(numbers(first, first + 300))
            deployment.wait_for_more_events(first)
            own_server.kill()
            own_server.start()
        until(lambda: deployment.count_events() == 600 and is_empty(queue), "all messages are stored once and acknowledged")
        deployment.balanced_stream()
