"""Copy dead letters to a topic of Pulsar. The broker confirms each copy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import CopyRejected, HeadraceError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.sources.dead_letters.message import copied_headers, copied_value, text_headers
from headrace.sources.dead_letters.time_limit import time_limit
from headrace.sources.decoding import ATTRIBUTE_PREFIX
from headrace.sources.pulsar.admin import AdminApi
from headrace.sources.pulsar.client import PulsarClient
from headrace.sources.pulsar.message import PULSAR_PREFIX
from headrace.sources.pulsar.server_errors import described, result_of
from headrace.sources.pulsar.settings import settings_of
from headrace.sources.pulsar.subscriptions import Description
from headrace.sources.pulsar.upstream import Pulsar
from headrace.triggers.secrets import aget_connection

SEND_SECONDS: Final = 30.0
"""Time limit of one call, in which the connection is opened and all copies are confirmed."""
HINT: Final = "Is the broker running, and has the topic room?"
TOO_LARGE: Final = "MessageTooBig"


class PulsarDeadLetterSender(DeadLetterSender):
    """Sends copies to a topic, all of one call without a pause, and each as a message of its own."""

    def __init__(self, description: Description, topic: str) -> None:
        self._description = description
        self._topic = topic
        self._target = f"topic {topic}"
        self._client: PulsarClient | None = None
        self._producer: Any = None

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        """Send the copies and wait for the confirmation of each.

        Raises:
            HeadraceError: The topic is missing, or the broker refuses the connection or does not answer.
        """
        async with time_limit(SEND_SECONDS, self._target, HINT):
            if self._producer is None:
                await self._open()
            # The client takes a message before it first waits. So the messages are sent in this order.
            return await asyncio.gather(*map(self._send, copies))

    async def aclose(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()

    async def _open(self) -> None:
        settings = settings_of(await aget_connection(self._description.connection))
        admin = AdminApi(settings)
        try:
            await admin.open()
            await admin.partitions(self._topic)  # a broker may create a topic that is missing
        finally:
            await admin.aclose()
        if self._client is None:
            self._client = PulsarClient(settings)
            await self._client.open()
        self._producer = await self._client.create_producer(self._topic)

    async def _send(self, copy: DeadLetterCopy) -> HeadraceError | None:
        decode, metadata = self._description.decode, copy.metadata
        value, is_original = copied_value(copy, decode)
        pairs = copied_headers(copy, None if is_original else decode)
        properties = text_headers([(_property_name(name, decode), content) for name, content in pairs])
        try:
            await self._producer.send(value, properties=properties, partition_key=None if metadata is None else metadata.key)
        except Exception as error:
            if result_of(error) == TOO_LARGE:
                return CopyRejected(f"The broker refuses it: {len(value):,} bytes without its properties are too many ({TOO_LARGE}).")
            return described(f"A copy to {self._target} was not sent", error)
        return None


def _property_name(name: str, decode: str) -> str:
    """Return a name as it was before `raw_event` read it."""
    if decode == "cloudevents" and name.startswith(ATTRIBUTE_PREFIX):
        return PULSAR_PREFIX + name[len(ATTRIBUTE_PREFIX) :]
    return name


def make_sender(upstream: Pulsar) -> PulsarDeadLetterSender:
    """Return the sender to the dead-letter topic of an upstream."""
    description = upstream.description()
    if description.dead_letter_topic is None:
        raise UpstreamError(f"{upstream.stream_key()} has no dead-letter topic.")
    return PulsarDeadLetterSender(description, description.dead_letter_topic)
