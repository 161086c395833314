"""Read a subscription of Pub/Sub as a shared stream."""

from __future__ import annotations

from typing import NamedTuple

from headrace.sources.declared_decoder import Decoding, decoder_of
from headrace.sources.decoding import decode_again
from headrace.sources.leases.producer import LeaseProducer
from headrace.sources.leases.service import LeaseService, LeaseSettings
from headrace.sources.pubsub.client import PubSubClient
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection


class SubscriptionDescription(NamedTuple):
    """The arguments of a `PubSub` upstream, as its producer needs them."""

    subscription: str
    connection: str
    decode: Decoding
    lease: int
    wait: int
    dead_letter_topic: str | None = None


class PubSubProducer(LeaseProducer):
    """The producer of a `PubSub` upstream. A lane is an ordering key, or a subscription without order."""

    def __init__(self, description: SubscriptionDescription) -> None:
        super().__init__()
        self._description = description

    async def connect(self) -> tuple[LeaseService, LeaseSettings]:
        """Look up the subscription. Raises as `open_stream` does."""
        name, connection, decode, lease, wait, _ = self._description
        client = await PubSubClient.create(await aget_connection(connection), name, wait, decode)
        try:
            subscription = await client.look_up()
        except BaseException:
            await client.aclose()
            raise
        return client, LeaseSettings(name, subscription.deadline, lease, wait, subscription.is_ordered)

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed message, decoded again."""
        return decode_again(decoder_of(self._description.decode), message)
