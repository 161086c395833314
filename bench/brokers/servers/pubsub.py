"""Pub/Sub: a subscription of the fake with which Google's Go client tests itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import grpc
from bench.brokers.broker import Advanced, Broker, Send, value
from google.protobuf.wrappers_pb2 import Int64Value, StringValue
from google.pubsub_v1.services.publisher import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber import SubscriberClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from headrace import PubSub

PROJECT: Final = "bench"
PULLED: Final = 100
"""Messages of one pull of the bare client, as many as those of Headrace."""
COUNT: Final = "/headrace.Pstest/Acknowledged"
"""The call with which `scripts/brokers/pstest` returns how many messages of a subscription were acknowledged."""


class Server(Broker):
    """The fake, which keeps all messages in memory. A source is a topic with a subscription of its name."""

    server = "pubsub"
    source = "a subscription without order of pstest"
    count = "acknowledged messages"
    ordered: ClassVar[bool] = False
    messages: ClassVar[int] = 20_000
    rate: ClassVar[int] = 500

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._channel = grpc.insecure_channel(address)
        self._publisher: Any = PublisherClient(transport=PublisherGrpcTransport(channel=self._channel))
        self._subscriber: Any = _subscriber(self._channel)
        self._count: Any = self._channel.unary_unary(
            COUNT, request_serializer=StringValue.SerializeToString, response_deserializer=Int64Value.FromString
        )

    @property
    def connection(self) -> str:
        return f"pubsub://{self.address}/{PROJECT}?emulator=true"

    def upstream(self, name: str) -> PubSub:
        return PubSub(name, connection="bench", wait=1)

    def create(self, name: str) -> None:
        self._publisher.create_topic(name=_topic(name))
        self._subscriber.create_subscription(request={"name": _subscription(name), "topic": _topic(name), "ack_deadline_seconds": 60})

    def drop(self, name: str) -> None:
        self._subscriber.delete_subscription(subscription=_subscription(name))
        self._publisher.delete_topic(topic=_topic(name))

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        yield lambda numbers: self._send(name, numbers)

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        yield lambda: [self._count(StringValue(value=_subscription(name))).value]

    def _send(self, name: str, numbers: Sequence[int]) -> None:
        self._publisher.publish(topic=_topic(name), messages=[{"data": value(number)} for number in numbers])

    @staticmethod
    def read(address: str, name: str) -> None:
        subscriber, path = _subscriber(grpc.insecure_channel(address)), _subscription(name)
        while True:
            received = subscriber.pull(subscription=path, max_messages=PULLED).received_messages
            if received:
                subscriber.acknowledge(subscription=path, ack_ids=[each.ack_id for each in received])


def _subscriber(channel: grpc.Channel) -> Any:
    return SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))


def _topic(name: str) -> str:
    return f"projects/{PROJECT}/topics/{name}"


def _subscription(name: str) -> str:
    return f"projects/{PROJECT}/subscriptions/{name}"
