"""Connections to the listeners of a `SecureKafkaServer`, one for each mechanism."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from headrace.core.connection import Connection
from headrace.sources.kafka.producer import KafkaProducer
from headrace.sources.kafka.upstream import Kafka
from support.processes.broker_server import connection_variable
from support.processes.secure_kafka import PLAIN_USER, SCRAM_USER, SecureKafkaServer

Mechanism = Literal["plain", "scram", "mutual", "oauth"]
MECHANISMS: tuple[Mechanism, ...] = ("plain", "scram", "mutual", "oauth")
KEY_PASSWORD = "password of the key"
LISTENERS = {"plain": "SASL", "scram": "SASL", "mutual": "MUTUAL", "oauth": "OAUTH"}


def secure_connection(server: SecureKafkaServer, mechanism: Mechanism, listener: str | None = None) -> Connection:
    """Return a connection that the server accepts, as the guide describes it. `listener` names another listener."""
    host, _, port = server.address_of(listener or LISTENERS[mechanism]).partition(":")
    extra: dict[str, Any] = {"ssl.ca.location": str(server.authority.certificate)}
    connection = Connection("secure", "kafka", host=host, port=int(port), extra=extra)
    if mechanism == "plain":
        return replace(connection, login=PLAIN_USER, password=server.password)
    if mechanism == "scram":
        return changed(replace(connection, login=SCRAM_USER, password=server.password), {"sasl.mechanism": "SCRAM-SHA-512"})
    if mechanism == "mutual":
        certificate = server.authority.issue("client", address=None, password=KEY_PASSWORD)
        return changed(
            connection,
            {
                "ssl.certificate.location": str(certificate),
                "ssl.key.location": str(certificate.with_suffix(".key")),
                "ssl.key.password": KEY_PASSWORD,
            },
        )
    return changed(
        replace(connection, login=server.tokens.client, password=server.tokens.client_secret),
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": server.tokens.url,
            "https.ca.location": str(server.authority.certificate),
        },
    )


def changed(connection: Connection, extra: Mapping[str, Any]) -> Connection:
    """Return the connection with other settings in its extra. None removes one."""
    merged = {name: value for name, value in (dict(connection.extra) | dict(extra)).items() if value is not None}
    return replace(connection, extra=merged)


class SecureTopic:
    """A topic with a group of its own, read through a connection."""

    def __init__(self, server: SecureKafkaServer) -> None:
        self.server = server
        self.name = server.create_topic()
        self.connection = f"kafka_{secrets.token_hex(4)}"

    def upstream(self, connection: Connection, **arguments: Any) -> Kafka:
        """Return an upstream that uses the connection."""
        os.environ[connection_variable(self.connection)] = connection.url
        return Kafka(self.name, connection=self.connection, group=self.name, **arguments)

    def producer(self, connection: Connection, **arguments: Any) -> KafkaProducer:
        """Return a new producer that uses the connection."""
        return self.upstream(connection, **arguments).producer()

    def committed(self) -> int:
        """Return the committed offset of the group."""
        return self.server.committed(self.name, self.name)

    def close(self) -> None:
        """Drop the connection."""
        os.environ.pop(connection_variable(self.connection), None)
