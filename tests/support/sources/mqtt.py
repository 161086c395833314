"""A session of a test, with a topic, a connection and an upstream of its own, and the broker for the contract suite."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from headrace.sources.mqtt.producer import MqttProducer
from headrace.sources.mqtt.upstream import Mqtt
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import Upstream
from support.processes.broker_server import connection_variable
from support.processes.mosquitto import MosquittoServer

MAX_RECEIVE_MAXIMUM = 65_535


class MqttSession:
    """A session that is subscribed to all topics below one of its own. The server keeps messages for it from now on."""

    def __init__(self, server: MosquittoServer) -> None:
        self.server = server
        self.client_id = f"reader-{secrets.token_hex(6)}"
        self.topic = f"orders/{secrets.token_hex(6)}"
        self.filter = f"{self.topic}/#"
        self.connection = f"mqtt_{secrets.token_hex(4)}"
        self.set_connection(f"mqtt://{server.address}")
        server.subscribe(self.client_id, [self.filter])

    def set_connection(self, url: str) -> None:
        """Set the connection."""
        os.environ[connection_variable(self.connection)] = url

    def send(self, payloads: Sequence[bytes], **options: Any) -> None:
        """Publish messages."""
        self.server.send(self.topic, payloads, **options)

    def upstream(self, **arguments: Any) -> Mqtt:
        """Return an upstream of the session."""
        arguments = {"client_id": self.client_id, "connection": self.connection} | arguments
        return Mqtt(arguments.pop("topics", self.filter), **arguments)

    def producer(self, **arguments: Any) -> MqttProducer:
        """Return a new producer of the session."""
        return self.upstream(**arguments).producer()

    def close(self) -> None:
        """End the session and drop the connection."""
        os.environ.pop(connection_variable(self.connection), None)
        self.server.end_session(self.client_id)


MakeSession = Callable[..., MqttSession]
"""Begins a session, by default on the shared server."""


class MqttBroker(Broker):
    """A session of its own."""

    lanes: ClassVar[bool] = False
    positions: ClassVar[bool] = False
    progress: ClassVar[bool] = False

    def __init__(self, server: MosquittoServer) -> None:
        self._session = MqttSession(server)

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._session.send(messages)

    def upstream(self) -> Upstream:
        return self._session.upstream(receive_maximum=MAX_RECEIVE_MAXIMUM)

    def close(self) -> None:
        self._session.close()
