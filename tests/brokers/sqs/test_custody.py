"""SQS through real processes: triggerers that are killed, and the audit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, until
from support.sources.reading import numbers
from support.sources.sqs import SqsQueue

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("sqs"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import SQS, Project

project = Project("shop")
project.watch("orders", SQS({queue!r}, connection={connection!r}, visibility=3, wait=1))
"""


@pytest.fixture
def deployment(tmp_path: Path, queue: SqsQueue) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(queue.connection)
        yield deployment


def test_killed_triggerers_store_each_message_once_and_the_audit_balances(deployment: Deployment, queue: SqsQueue) -> None:
    """The watch declares no id: that of the message makes a second delivery a duplicate."""
    path = deployment.project(PROJECT.format(queue=queue.name, connection=queue.connection))
    for first in range(0, 600, 200):
        queue.send([*numbers(first, first + 199), b"no json"])
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(deployment.count_events())
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: queue.count() == (0, 0), "all messages are deleted")
    assert deployment.count_events() == 597
    assert deployment.balanced_stream()["read"] >= 600
    letters = json.loads(deployment.cli("dead-letters", "list", "--json").stdout)
    assert len(letters["dead_letters"] if isinstance(letters, dict) else letters) == 3
