"""Service Bus through real processes: triggerers that are killed, and the audit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.calls import admin as calls
from support.processes.deployment import Deployment, until
from support.sources.reading import numbers
from support.sources.service_bus import LOCK_SECONDS, MakeQueue, ServiceBusQueue

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("service-bus"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Project, ServiceBus

project = Project("shop")
project.watch("orders", ServiceBus({queue!r}, connection={connection!r}, lock={lock}, sessions={sessions}))
"""


@pytest.fixture(params=[None, 2])
def source(make_queue: MakeQueue, request: pytest.FixtureRequest) -> ServiceBusQueue:
    return make_queue(sessions=request.param)


@pytest.fixture
def deployment(tmp_path: Path, source: ServiceBusQueue) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(source.connection)
        yield deployment


def test_killed_triggerers_store_each_message_once_and_the_audit_balances(deployment: Deployment, source: ServiceBusQueue) -> None:
    """The watch declares no id: that of the message makes a second delivery a duplicate."""
    text = PROJECT.format(queue=source.name, connection=source.connection, lock=LOCK_SECONDS, sessions=source.sessions)
    path = deployment.project(text)
    for first in range(0, 600, 200):
        source.send([*numbers(first, first + 199), b"no json"])
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(deployment.count_events())
        triggerer.kill()
    triggerer = deployment.triggerer(path)
    until(lambda: source.count() == (0, 0), "all messages are completed")
    assert deployment.count_events() == 597
    assert deployment.balanced_stream()["read"] >= 600
    triggerer.stop()
    with deployment.admin() as client:
        assert len(client.get(calls.LIST_DEAD_LETTERS)["dead_letters"]) == 3
