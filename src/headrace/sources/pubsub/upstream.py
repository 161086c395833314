"""A subscription of Google Cloud Pub/Sub as an upstream."""

from __future__ import annotations

import re
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer
from headrace.sources.declared_decoder import Decoding, DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.pubsub.producer import PubSubProducer, SubscriptionDescription

MIN_LEASE_SECONDS: Final = 10
MAX_LEASE_SECONDS: Final = 600
MAX_WAIT_SECONDS: Final = 60
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
    """

    def __init__(
        self,
        subscription: str,
        *,
        connection: str = "pubsub",
        decode: Decoding | ValueFunction = "json",
        lease: int = 60,
        wait: int = 5,
    ) -> None:
        decoding = check_decoding(decode)
        self.decodings = (decoding,)
        self._description = SubscriptionDescription(
            _subscription_name(subscription),
            _connection_id(connection),
            decoding,
            check_integer("lease", lease, MIN_LEASE_SECONDS, MAX_LEASE_SECONDS, "seconds"),
            check_integer("wait", wait, 1, MAX_WAIT_SECONDS, "seconds"),
        )

    def stream_key(self) -> str:
        """Return `pubsub:` with the connection and the subscription."""
        return f"pubsub:{self._description.connection}/{self._description.subscription}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self._description._asdict()

    def producer(self) -> PubSubProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = PubSubProducer(self._description)
        producer.upstream = self
        return producer

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.pubsub.message"


def _subscription_name(subscription: object) -> str:
    if not isinstance(subscription, str) or not _NAME.fullmatch(subscription):
        raise UpstreamError(
            f"Invalid subscription {subscription!r}.",
            hint="Give its name without the project: 3 to 255 letters, digits and '-._~+%', first a letter.",
        )
    return subscription


def _connection_id(connection: object) -> str:
    if not isinstance(connection, str) or not connection:
        raise UpstreamError(f"Invalid connection {connection!r}: it is not a text.")
    return connection
