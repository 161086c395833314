"""A subscription of a test, with a topic, a connection and an upstream of its own."""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from headrace.sources.pubsub.producer import PubSubProducer
from headrace.sources.pubsub.upstream import PubSub
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import Upstream
from support.processes.broker_server import BrokerServer, connection_variable
from support.processes.pubsub import shared

PROJECT = "projects/shop"
CLOSE_SECONDS = 5.0


class PubSubSubscription:
    """A subscription of a server, by default of the shared one, with the shortest deadline."""

    def __init__(self, *, ordered: bool = False, server: BrokerServer | None = None) -> None:
        import grpc
        from google.pubsub_v1.services.publisher import PublisherClient
        from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
        from google.pubsub_v1.services.subscriber import SubscriberClient
        from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

        self.server = server or shared()
        address = self.server.address
        self._channel = grpc.insecure_channel(address)
        self._publisher: Any = PublisherClient(transport=PublisherGrpcTransport(channel=self._channel))
        self._subscriber: Any = SubscriberClient(transport=SubscriberGrpcTransport(channel=self._channel))
        self.name = f"orders-{secrets.token_hex(4)}"
        self._topic, self._path = f"{PROJECT}/topics/{self.name}", f"{PROJECT}/subscriptions/{self.name}"
        self._is_ordered = ordered
        self.create()
        self.connection = f"pubsub_{secrets.token_hex(4)}"
        self.set_address(address)

    def create(self) -> None:
        """Create the topic and the subscription. A server that was killed has forgotten them."""
        self.create_topic()
        self._subscriber.create_subscription(
            request={"name": self._path, "topic": self._topic, "ack_deadline_seconds": 10, "enable_message_ordering": self._is_ordered}
        )

    def create_topic(self) -> None:
        """Create the topic."""
        self._publisher.create_topic(name=self._topic)

    def delete_topic(self) -> None:
        """Delete the topic. The subscription stays."""
        self._publisher.delete_topic(topic=self._topic)

    def set_address(self, address: str) -> None:
        """Set the address of the connection."""
        os.environ[connection_variable(self.connection)] = f"pubsub://{address}/shop?emulator=true"

    def send(self, messages: Sequence[bytes], key: str = "", **attributes: str) -> None:
        """Publish messages."""
        for start in range(0, len(messages), 200):
            batch = [{"data": data, "ordering_key": key, "attributes": attributes} for data in messages[start : start + 200]]
            self._publisher.publish(topic=self._topic, messages=batch)

    def take(self) -> list[Any]:
        """Take all messages, as `PubsubMessage`s, and acknowledge them."""
        taken: list[Any] = []
        request = {"subscription": self._path, "max_messages": 1_000, "return_immediately": True}
        with warnings.catch_warnings(action="ignore"):  # the flag is deprecated, and without it the fake waits
            while received := self._subscriber.pull(request=request).received_messages:
                self._subscriber.acknowledge(subscription=self._path, ack_ids=[one.ack_id for one in received])
                taken += [type(one.message).pb(one.message) for one in received]
        return taken

    def has_topic(self, name: str) -> bool:
        """Return whether the server has a topic."""
        return f"{PROJECT}/topics/{name}" in {topic.name for topic in self._publisher.list_topics(project=PROJECT)}

    def pull(self) -> list[str]:
        """Return the ids of messages that another reader gets now."""
        answer = self._subscriber.pull(subscription=self._path, max_messages=1_000)
        return [received.message.message_id for received in answer.received_messages]

    def delete(self) -> None:
        """Delete the subscription."""
        self._subscriber.delete_subscription(subscription=self._path)

    def upstream(self, **arguments: Any) -> PubSub:
        """Return an upstream of the subscription."""
        named: dict[str, Any] = {"connection": self.connection, "lease": 10, "wait": 1} | arguments
        return PubSub(self.name, **named)

    def producer(self, **arguments: Any) -> PubSubProducer:
        """Return a new producer of the subscription."""
        return self.upstream(**arguments).producer()

    def close(self) -> None:
        """Delete the subscription, which the fake would test for messages every 10 ms, and drop the connection."""
        os.environ.pop(connection_variable(self.connection), None)
        from google.api_core.exceptions import GoogleAPICallError

        with suppress(GoogleAPICallError):  # a test may have deleted it, or killed the server
            self._subscriber.delete_subscription(subscription=self._path, retry=None, timeout=CLOSE_SECONDS)
        self._channel.close()


class PubSubBroker(Broker):
    """A subscription without order."""

    lanes: ClassVar[bool] = False
    positions: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    progress: ClassVar[bool] = False

    def __init__(self) -> None:
        self._subscription = PubSubSubscription()

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._subscription.send(messages)

    def upstream(self) -> Upstream:
        return self._subscription.upstream()

    def close(self) -> None:
        self._subscription.close()
