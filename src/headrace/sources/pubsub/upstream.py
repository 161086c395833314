"""A subscription of Google Cloud Pub/Sub as an upstream."""

from __future__ import annotations

import re
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_text
from headrace.sources.declared_decoder import Decoding, DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.pubsub.producer import PubSubProducer, SubscriptionDescription

MIN_LEASE_SECONDS: Final = 10
MAX_LEASE_SECONDS: Final = 600
MAX_WAIT_SECONDS: Final = 20
"""The longest wait that ends within the close timeout, 30 s by default, and leaves time to release the held messages."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._~+%-]{2,254}")


class PubSub(DecodingUpstream):
    """A pull subscription of Google Cloud Pub/Sub. A message becomes a raw event with its id, ordering key, attributes and publish time.

    A subscription with message ordering has one lane for each ordering key, any other one lane without order. Messages have no position.

    Args:
        subscription: The name of the subscription, without its project.
        connection: The id of a connection of kind `pubsub`, with the project and, if needed, credentials and address.
        decode: How the data become JSON: `"json"`, `"text"`, `"base64"`, `"cloudevents"`, `"debezium"`, or by a function.
        lease: The acknowledgement deadline in seconds that an extension sets. It is extended as long as the message is not answered.
        wait: The seconds of a pull without messages. Closing the upstream takes up to this time.
        dead_letter_topic: The topic that gets a copy of each dead letter, or None. It must exist in the project of the connection, and must
            not be the topic of the subscription.
    """

    def __init__(
        self,
        subscription: str,
        *,
        connection: str = "pubsub",
        decode: Decoding | ValueFunction = "json",
        lease: int = 60,
        wait: int = 5,
        dead_letter_topic: str | None = None,
    ) -> None:
        decoding = check_decoding(decode)
        self.decodings = (decoding,)
        self._description = SubscriptionDescription(
            _resource_name("subscription", subscription),
            check_text("connection", connection),
            decoding,
            check_integer("lease", lease, MIN_LEASE_SECONDS, MAX_LEASE_SECONDS, "seconds"),
            check_integer("wait", wait, 1, MAX_WAIT_SECONDS, "seconds"),
            None if dead_letter_topic is None else _resource_name("dead_letter_topic", dead_letter_topic),
        )

    def stream_key(self) -> str:
        """Return `pubsub:` with the connection and the subscription."""
        return f"pubsub:{self._description.connection}/{self._description.subscription}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        arguments = self._description._asdict()
        if arguments["dead_letter_topic"] is None:
            del arguments["dead_letter_topic"]
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    def description(self) -> SubscriptionDescription:
        """Return the arguments as a producer needs them."""
        return self._description

    def producer(self) -> PubSubProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = PubSubProducer(self._description)
        producer.upstream = self
        return producer

    @property
    def dead_letter_target(self) -> str | None:
        """The topic that gets copies of dead letters."""
        topic = self._description.dead_letter_topic
        return None if topic is None else f"topic {topic}"

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.pubsub.message"


def _resource_name(argument: str, name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UpstreamError(
            f"Invalid {argument} {name!r}.",
            hint="Give its name without the project: 3 to 255 letters, digits and '-._~+%', first a letter.",
        )
    return name
