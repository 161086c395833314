"""A queue or subscription of Azure Service Bus as an upstream."""

from __future__ import annotations

import re
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_text
from headrace.sources.declared_decoder import Decoding, DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.service_bus.producer import EntityDescription, ServiceBusProducer

MIN_LOCK_SECONDS: Final = 5
MAX_LOCK_SECONDS: Final = 300
"""What the service allows as the lock duration of a queue."""
MAX_SESSIONS: Final = 100
"""Each session has a connection of its own."""
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,258}[A-Za-z0-9])?")
_SUBSCRIPTION: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,48}[A-Za-z0-9])?")


class ServiceBus(DecodingUpstream):
    """A queue of Azure Service Bus, or a subscription of a topic. It was not run against the service, only against a fake of it.

    A message becomes a raw event with its sequence number as id, its properties, and the number of deliveries. With sessions, each is a
    lane. Without, the queue or subscription is one lane without order. Messages have no position.

    Args:
        entity: The name of the queue, or of the topic.
        subscription: The name of the subscription of the topic, or None for a queue.
        connection: The id of a connection of kind `servicebus`, with the namespace and, if needed, credentials.
        decode: How a body becomes JSON: `"json"`, `"text"`, `"base64"`, `"cloudevents"`, `"debezium"`, or by a function.
        lock: The lock duration of the queue or subscription in seconds, or less. A lock is renewed after half of this time, as long as the
            message is not answered.
        sessions: The number of sessions that are read at once, or None if the queue or subscription does not require sessions.
        dead_letter_queue: The queue or topic that gets a copy of each dead letter, or None. It must exist in the namespace, and must be
            another one. The dead-letter subqueue of the service is not used.
    """

    def __init__(
        self,
        entity: str,
        subscription: str | None = None,
        *,
        connection: str = "servicebus",
        decode: Decoding | ValueFunction = "json",
        lock: int = 30,
        sessions: int | None = None,
        dead_letter_queue: str | None = None,
    ) -> None:
        decoding = check_decoding(decode)
        self.decodings = (decoding,)
        self._description = EntityDescription(
            _name("entity", entity, _NAME),
            None if subscription is None else _name("subscription", subscription, _SUBSCRIPTION),
            check_text("connection", connection),
            decoding,
            check_integer("lock", lock, MIN_LOCK_SECONDS, MAX_LOCK_SECONDS, "seconds"),
            None if sessions is None else check_integer("sessions", sessions, 1, MAX_SESSIONS, "sessions"),
            None if dead_letter_queue is None else _other_entity(dead_letter_queue, entity),
        )

    def stream_key(self) -> str:
        """Return `servicebus:` with the connection and the queue or subscription."""
        return f"servicebus:{self._description.connection}/{self._description.name}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        arguments = {name: value for name, value in self._description._asdict().items() if value is not None}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    def description(self) -> EntityDescription:
        """Return the arguments as a producer needs them."""
        return self._description

    def producer(self) -> ServiceBusProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = ServiceBusProducer(self._description)
        producer.upstream = self
        return producer

    @property
    def dead_letter_target(self) -> str | None:
        """The queue that gets copies of dead letters."""
        queue = self._description.dead_letter_queue
        return None if queue is None else f"queue {queue}"

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.servicebus.message"


def _name(argument: str, name: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise UpstreamError(
            f"Invalid {argument} {name!r}.",
            hint="Give its name without the namespace: letters, digits and '._-', first and last a letter or digit.",
        )
    return name


def _other_entity(name: object, read: str) -> str:
    """Return the dead-letter queue. Refuse the one that is read: each dead letter would be read again as a message."""
    other = _name("dead_letter_queue", name, _NAME)
    if other.lower() == read.lower():
        raise UpstreamError(f"The dead-letter queue {other!r} is the one that is read.", hint="Name another queue.")
    return other
