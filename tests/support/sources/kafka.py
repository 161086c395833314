"""A topic of a test, with a connection, a group and an upstream of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from headrace.sources.kafka.producer import KafkaProducer
from headrace.sources.kafka.upstream import Kafka
from support.processes.broker_server import connection_variable
from support.processes.kafka import KafkaServer


class KafkaTopic:
    """A topic of a server. Metadata are refreshed often, so that tests need not wait."""

    def __init__(self, server: KafkaServer, partitions: int = 1, **settings: str) -> None:
        self.server = server
        self.name = server.create_topic(partitions=partitions)
        self.group = self.name
        self.connection = f"kafka_{secrets.token_hex(4)}"
        self.set_connection(server.address, **settings)

    def set_connection(self, address: str, **settings: str) -> None:
        """Set the connection: an address, and settings with underscores for dots."""
        named = {"topic.metadata.refresh.interval.ms": "200"} | {name.replace("_", "."): value for name, value in settings.items()}
        query = "&".join(f"{name}={value}" for name, value in named.items())
        os.environ[connection_variable(self.connection)] = f"kafka://{address}?{query}"

    def send(self, values: Sequence[bytes | None], partition: int = 0, **fields: Any) -> None:
        """Send messages."""
        self.server.send(self.name, values, partition, **fields)

    def upstream(self, topics: str | None = None, **arguments: Any) -> Kafka:
        """Return an upstream of the topic."""
        arguments = {"connection": self.connection, "group": self.group} | arguments
        return Kafka(topics or self.name, **arguments)

    def producer(self, **arguments: Any) -> KafkaProducer:
        """Return a new producer of the topic."""
        return self.upstream(**arguments).producer()

    def committed(self, partition: int = 0) -> int:
        """Return the committed offset of the group."""
        return self.server.committed(self.group, self.name, partition)

    def close(self) -> None:
        """Drop the connection."""
        os.environ.pop(connection_variable(self.connection), None)


MakeTopic = Callable[..., KafkaTopic]
"""Creates a topic, by default of one partition on the shared server."""
