"""MQTT through real processes: triggerers that are killed, a server that is killed, and the audit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, until
from support.processes.mosquitto import MosquittoServer
from support.sources.mqtt import MakeSession, MqttSession
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("mqtt-outages"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Mqtt, Project

project = Project("shop")
project.watch("orders", Mqtt({topics!r}, client_id={client_id!r}, connection={connection!r}), id="$.n")
"""


@pytest.fixture
def session(make_session: MakeSession, own_server: MosquittoServer) -> MqttSession:
    return make_session(own_server)


@pytest.fixture
def deployment(tmp_path: Path, session: MqttSession) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(session.connection)
        yield deployment


def project_of(deployment: Deployment, session: MqttSession) -> Path:
    return deployment.project(PROJECT.format(topics=session.filter, client_id=session.client_id, connection=session.connection))


def test_killed_triggerers_and_a_killed_server_store_each_message_once_and_the_audit_balances(
    deployment: Deployment, session: MqttSession, own_server: MosquittoServer
) -> None:
    path = project_of(deployment, session)
    for first in range(0, 600, 200):
        session.send([*numbers(first, first + 200), b"no json"])
        triggerer = deployment.triggerer(path)
        deployment.wait_for_more_events(deployment.count_events())
        if first == 200:
            own_server.kill()
            own_server.start()
        triggerer.kill()
    deployment.triggerer(path)
    until(lambda: deployment.count_events() == 600, "all messages are stored once")
    session.send(numbers(600, 601))
    until(lambda: deployment.count_events() == 601, "the session is read on")
    until(lambda: deployment.balanced_stream()["read"] >= 604, "all answers are recorded")
    letters = json.loads(deployment.cli("dead-letters", "list", "--json").stdout)
    assert len(letters["dead_letters"] if isinstance(letters, dict) else letters) >= 3
