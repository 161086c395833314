"""A topic of a test, with a connection and an upstream of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from headrace.sources.pulsar.producer import PulsarProducer
from headrace.sources.pulsar.topics import partition_names
from headrace.sources.pulsar.upstream import Pulsar
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import Upstream
from support.processes.broker_server import connection_variable
from support.processes.pulsar import PulsarServer, path_of

SUBSCRIPTION = "shop"


class PulsarTopic:
    """A topic of a server, by default without partitions."""

    def __init__(self, server: PulsarServer, partitions: int = 0, **options: Any) -> None:
        self.server = server
        self.partitions = partitions
        self.name = server.create_topic(partitions, **options)
        self.connection = f"pulsar_{secrets.token_hex(4)}"
        self.set_connection(server.url)

    def set_connection(self, text: str) -> None:
        """Set the connection."""
        os.environ[connection_variable(self.connection)] = text

    def partition(self, number: int = 0) -> str:
        """Return the topic of a partition, or the topic itself if it has none."""
        return partition_names(self.name, self.partitions)[number]

    def send(self, values: Sequence[bytes | None], partition: int = 0, **fields: Any) -> None:
        """Send messages to a partition."""
        self.server.send(self.partition(partition), values, **fields)

    def upstream(self, **arguments: Any) -> Pulsar:
        """Return an upstream of the topic."""
        named: dict[str, Any] = {"connection": self.connection, "subscription": SUBSCRIPTION} | arguments
        return Pulsar(self.name, **named)

    def producer(self, **arguments: Any) -> PulsarProducer:
        """Return a new producer."""
        return self.upstream(**arguments).producer()

    def add_partitions(self, count: int) -> None:
        """Increase the number of partitions."""
        self.server.admin("POST", f"{path_of(self.name)}/partitions", count)
        self.partitions = count

    def make_again(self) -> None:
        """Delete the topic, and create it again."""
        for number in range(self.partitions or 1):
            self.server.forget(self.partition(number))
        self.server.delete_topic(self.name, partitioned=bool(self.partitions))
        self.server.create_topic(self.partitions, name=self.name.rpartition("/")[2])

    def subscription(self, partition: int = 0) -> dict[str, Any] | None:
        """Return the statistics of the subscription, or None if it does not exist."""
        found: dict[str, Any] | None = self.server.stats(self.partition(partition))["subscriptions"].get(SUBSCRIPTION)
        return found

    def is_read(self) -> bool:
        """Return whether all partitions have a consumer."""
        found = [self.subscription(number) for number in range(self.partitions or 1)]
        return all(one is not None and one["consumers"] for one in found)

    def backlog(self, partition: int = 0) -> int:
        """Return the number of entries that are not acknowledged."""
        found = self.subscription(partition)
        return -1 if found is None else int(found["msgBacklog"])

    def close(self) -> None:
        """Drop the connection and the producers."""
        os.environ.pop(connection_variable(self.connection), None)
        for number in range(self.partitions or 1):
            self.server.forget(self.partition(number))


MakeTopic = Callable[..., PulsarTopic]
"""Creates a topic on the shared server."""


class PulsarBroker(Broker):
    """A topic of its own. A lane is a partition: 20 if the contract names 20 lanes, and 5 otherwise."""

    positions = False
    progress = False

    def __init__(self, server: PulsarServer) -> None:
        self._server = server
        self._topic: PulsarTopic | None = None

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        many = lane.startswith("lane")
        self._made(20 if many else 5).send(messages, int(lane[-2:]) if many else "abcde".index(lane), batch=7)

    def upstream(self) -> Upstream:
        return self._made(5).upstream()

    def close(self) -> None:
        if self._topic is not None:
            self._topic.close()

    def _made(self, partitions: int) -> PulsarTopic:
        if self._topic is None:
            self._topic = PulsarTopic(self._server, partitions)
        return self._topic
