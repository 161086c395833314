"""The sender of each kind of upstream."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from headrace.errors import UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterSender
from headrace.triggers.upstream import Upstream

MODULES: Final[Mapping[str, str]] = {
    "headrace.sources.kafka.upstream.Kafka": "headrace.sources.dead_letters.kafka",
    "headrace.sources.kinesis.upstream.Kinesis": "headrace.sources.dead_letters.cloud.kinesis",
    "headrace.sources.mqtt.upstream.Mqtt": "headrace.sources.dead_letters.mqtt",
    "headrace.sources.nats.upstream.Nats": "headrace.sources.dead_letters.nats",
    "headrace.sources.pubsub.upstream.PubSub": "headrace.sources.dead_letters.cloud.pubsub",
    "headrace.sources.pulsar.upstream.Pulsar": "headrace.sources.dead_letters.pulsar",
    "headrace.sources.rabbitmq.streams.upstream.RabbitMQStreams": "headrace.sources.dead_letters.rabbitmq",
    "headrace.sources.rabbitmq.upstream.RabbitMQ": "headrace.sources.dead_letters.rabbitmq",
    "headrace.sources.redis.upstream.RedisStreams": "headrace.sources.dead_letters.redis",
    "headrace.sources.service_bus.upstream.ServiceBus": "headrace.sources.dead_letters.cloud.service_bus",
    "headrace.sources.sqs.upstream.SQS": "headrace.sources.dead_letters.cloud.sqs",
}
"""The module with the function `make_sender` for each class. It is imported when it is needed."""


def make_sender(upstream: Upstream) -> DeadLetterSender:
    """Return a sender for the dead letters of an upstream. It connects when it first sends.

    Raises:
        UpstreamError: Dead letters of this kind of upstream cannot be copied.
    """
    module = MODULES.get(f"{type(upstream).__module__}.{type(upstream).__qualname__}")
    if module is None:
        raise UpstreamError(f"Dead letters of {upstream.stream_key()} cannot be copied: it is not built in.")
    sender: DeadLetterSender = import_module(module).make_sender(upstream)
    return sender
