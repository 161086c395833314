"""Fixtures of the tests on sessions of MQTT."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.processes.mosquitto import MosquittoServer, require, shared
from support.sources.mqtt import MakeSession, MqttSession


@pytest.fixture
def make_session() -> Iterator[MakeSession]:
    """Return the function that begins a session, by default on the shared server."""
    sessions: list[MqttSession] = []

    def make(server: MosquittoServer | None = None) -> MqttSession:
        sessions.append(MqttSession(server or shared()))
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()


@pytest.fixture
def session(make_session: MakeSession) -> MqttSession:
    """Return a session on the shared server."""
    return make_session()


@pytest.fixture(scope="session")
def own_server() -> Iterator[MosquittoServer]:
    """Return a server that tests may kill."""
    require()
    server = MosquittoServer()
    yield server
    server.close()
