"""SQS through real processes: triggerers that are killed, and the audit."""

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
from support.sources.sqs import SqsQueue

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("sqs"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import SQS, Project

project = Project("shop")
project.watch("orders", SQS({queue!r}, connection={connection!r}, visibility=3, wait=1))
"""


@pytest.fixture
def deployment(tmp_path: Path, queue: SqsQueue) -> Iterator[Deployment]:
    with Deployment(tmp_path) as deployment:
        variable = connection_variable(queue.connection)
        deployment._environment[variable] = os.environ[variable]
        yield deployment


def count(deployment: Deployment) -> int:
    return int(deployment.rows("SELECT count(*) FROM events")[0][0])


def has_more(deployment: Deployment, events: int) -> bool:
    return count(deployment) > events


def test_killed_triggerers_store_each_message_once_and_the_audit_balances(deployment: Deployment, queue: SqsQueue) -> None:
    """The watch declares no id: that of the message makes a second delivery a duplicate."""
    path = deployment.project(PROJECT.format(queue=queue.name, connection=queue.connection))
    for first in range(0, 600, 200):
        queue.send([*numbers(first, first + 199), b"no json"])
        triggerer = deployment.triggerer(path)
        until(partial(has_more, deployment, count(deployment)), "messages of this reader are stored")
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: queue.count() == (0, 0), "all messages are deleted")
    assert count(deployment) == 597
    report: Any = json.loads(deployment.cli("audit", "--json").stdout)
    (stream,) = report["streams"]
    assert stream["problems"] == []
    assert stream["read"] >= 600
    assert all(trigger["balanced"] for trigger in stream["triggers"])
    letters = json.loads(deployment.cli("dead-letters", "list", "--json").stdout)
    assert len(letters["dead_letters"] if isinstance(letters, dict) else letters) == 3
