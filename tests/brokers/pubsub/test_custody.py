"""Pub/Sub through real processes: triggerers that are killed, and the audit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.calls import admin as calls
from support.processes.deployment import Deployment, until
from support.sources.pubsub import PubSubSubscription
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("pubsub"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Project, PubSub

project = Project("shop")
project.watch("orders", PubSub({subscription!r}, connection={connection!r}, lease=10, wait=1))
"""


@pytest.fixture
def deployment(tmp_path: Path, subscription: PubSubSubscription) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(subscription.connection)
        yield deployment


def test_killed_triggerers_store_each_message_once_and_the_audit_balances(deployment: Deployment, subscription: PubSubSubscription) -> None:
    """The watch declares no id: that of the message makes a second delivery a duplicate."""
    path = deployment.project(PROJECT.format(subscription=subscription.name, connection=subscription.connection))
    for first in range(0, 600, 200):
        subscription.send([*numbers(first, first + 199), b"no json"])
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(deployment.count_events())
        triggerer.kill()
    triggerer = deployment.triggerer(path)
    until(lambda: deployment.count_events() == 597, "all messages are stored")
    until(lambda: len(_dead_letters(deployment)) == 3, "the others are dead letters")
    until(lambda: deployment.audited_stream()["read"] >= 600, "what killed triggerers have stored and not acknowledged comes again")
    until(lambda: deployment.audited_stream()["triggers"][0]["balanced"], "all messages are answered")
    triggerer.stop()
    assert deployment.balanced_stream()["read"] >= 600
    assert subscription.pull() == []


def _dead_letters(deployment: Deployment) -> list[object]:
    with deployment.admin() as client:
        letters: list[object] = client.get(calls.LIST_DEAD_LETTERS)["dead_letters"]
    return letters
