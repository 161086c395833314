"""RabbitMQ through real processes: triggerers that are killed, and the audit."""

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
from support.processes.rabbitmq import RabbitServer
from support.sources.kafka import numbers
from support.sources.rabbitmq import MakeQueue, RabbitQueue

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
    with Deployment(tmp_path) as deployment:
        variable = connection_variable(queue.connection)
        deployment._environment[variable] = os.environ[variable]
        yield deployment


def count(deployment: Deployment) -> int:
    return int(deployment.rows("SELECT count(*) FROM events")[0][0])


def has_more(deployment: Deployment, events: int) -> bool:
    return count(deployment) > events


def is_empty(queue: RabbitQueue) -> bool:
    details = queue.server.details(queue.name)
    return details.get("messages") == 0 and queue.ready() == 0


def test_killed_triggerers_store_each_message_once_and_the_audit_balances(deployment: Deployment, queue: RabbitQueue) -> None:
    """The watch declares no id: that of the message makes a second delivery a duplicate."""
    path = deployment.project(PROJECT.format(queue=queue.name, connection=queue.connection))
    for first in range(0, 600, 200):
        queue.send([*numbers(first, first + 199), b"no json"])
        triggerer = deployment.triggerer(path)
        until(partial(has_more, deployment, count(deployment)), "messages of this reader are stored")
        triggerer.kill()
    queue.send([b'{"n":600}'], message_id="twice")
    queue.send([b'{"n":600}'], message_id="twice")
    queue.server.send_without_id(queue.name, b'{"n":601}')
    deployment.triggerer(path)
    until(lambda: count(deployment) == 598 and is_empty(queue), "all messages are acknowledged, duplicates too")
    report: Any = json.loads(deployment.cli("audit", "--json").stdout)
    (stream,) = report["streams"]
    assert stream["problems"] == []
    assert stream["read"] >= 603
    assert all(trigger["balanced"] for trigger in stream["triggers"])
    letters = json.loads(deployment.cli("dead-letters", "list", "--json").stdout)
    found = letters["dead_letters"] if isinstance(letters, dict) else letters
    assert len(found) == 4
    assert sum("neither a position nor an id of the message" in json.dumps(letter) for letter in found) == 1


def test_a_server_that_is_killed_under_a_triggerer_loses_nothing_and_repeats_no_event(
    tmp_path: Path, make_queue: MakeQueue, own_server: RabbitServer
) -> None:
    queue = make_queue(server=own_server)
    variable = connection_variable(queue.connection)
    with Deployment(tmp_path) as deployment:
        deployment._environment[variable] = os.environ[variable]
        deployment.triggerer(deployment.project(PROJECT.format(queue=queue.name, connection=queue.connection)))
        for first in range(0, 600, 300):
            queue.send(numbers(first, first + 300))
            until(partial(has_more, deployment, first), "the first messages are stored")
            own_server.kill()
            own_server.start()
        until(lambda: count(deployment) == 600 and is_empty(queue), "all messages are stored once and acknowledged")
        report: Any = json.loads(deployment.cli("audit", "--json").stdout)
        (stream,) = report["streams"]
        assert stream["problems"] == []
        assert all(trigger["balanced"] for trigger in stream["triggers"])
