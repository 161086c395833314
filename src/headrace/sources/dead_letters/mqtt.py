"""Copy dead letters to a topic of MQTT, with QoS 1. The server confirms each copy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from secrets import token_hex
from typing import Any, Final
from unicodedata import category

from headrace.errors import CopyRejected, HeadraceError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.sources.dead_letters.message import copied_headers, copied_value, text_headers
from headrace.sources.dead_letters.time_limit import time_limit
from headrace.sources.decoding import ATTRIBUTE_PREFIX
from headrace.sources.mqtt.client import FAILURE, MqttClient
from headrace.sources.mqtt.message import SPEC_VERSION
from headrace.sources.mqtt.producer import Subscription
from headrace.sources.mqtt.server_errors import rejected
from headrace.sources.mqtt.settings import address_of
from headrace.sources.mqtt.upstream import Mqtt
from headrace.triggers.secrets import aget_connection

SEND_SECONDS: Final = 30.0
"""Time limit of one call, in which the connection is opened and all copies are confirmed."""
MAX_TEXT_BYTES: Final = 65_535
"""Bytes of the name or the value of a user property."""
MAX_VALUE_BYTES: Final = MAX_TEXT_BYTES // 4 * 3
"""Bytes of the value of a header, which may be in base64."""
PACKET_OVERHEAD_BYTES: Final = 64
"""Bytes of a packet beside its topic, payload and user properties, at most."""
PROPERTY_OVERHEAD_BYTES: Final = 5
NO_SUBSCRIBERS: Final = 16
BYTE_ORDER_MARK: Final = 0xFEFF
REJECTED_COPIES: Final = frozenset({149, 153})
"""Reason codes for a message that the server never takes: it is too large, or of the wrong format."""
HINT: Final = "Is the server running, and not overloaded?"
SUBSCRIBE_HINT: Final = "Subscribe to it with QoS 1 in a session that outlives its connection: MQTT stores messages for sessions only."
WRITE_HINT: Final = "Allow the user of the connection to publish to the topic."
NOT_AUTHORIZED: Final = 135


class MqttDeadLetterSender(DeadLetterSender):
    """Sends copies to a topic, all of one call without a pause."""

    def __init__(self, subscription: Subscription, topic: str) -> None:
        self._subscription = subscription
        self._topic = topic
        self._target = f"topic {topic!r}"
        self._client: MqttClient | None = None
        self._max_packet_bytes = 0

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        """Send the copies and wait for the confirmation of each.

        Raises:
            HeadraceError: The server refuses the connection or does not answer.
        """
        async with time_limit(SEND_SECONDS, self._target, HINT):
            client = self._client or await self._open()
            # The client puts a message into its buffer before it first waits. So the messages are sent in this order.
            return await asyncio.gather(*(self._send(client, copy) for copy in copies))

    async def aclose(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()

    async def _open(self) -> MqttClient:
        address = address_of(await aget_connection(self._subscription.connection))
        client = self._client = MqttClient(_ignore, _ignore)
        session = await client.open(address, f"headrace-{token_hex(8)}", expiry=0, receive_maximum=1)
        self._max_packet_bytes = session.max_packet_bytes
        return client

    async def _send(self, client: MqttClient, copy: DeadLetterCopy) -> HeadraceError | None:
        value, is_original = copied_value(copy, self._subscription.decode)
        properties = _user_properties(copy, None if is_original else self._subscription.decode)
        size = PACKET_OVERHEAD_BYTES + len(self._topic.encode()) + len(value) + sum(map(_size_of, properties))
        if size > self._max_packet_bytes:
            return CopyRejected(f"The server refuses it: {size:,} bytes with its headers, at most {self._max_packet_bytes:,}.")
        what = f"A copy to {self._target} was not sent"
        try:
            reason = await client.publish(what, self._topic, value, properties)
        except HeadraceError as error:
            return error
        return self._result(what, reason)

    def _result(self, what: str, reason: Any) -> HeadraceError | None:
        if reason.value == NO_SUBSCRIBERS:
            return UpstreamError(f"No session subscribes to the dead-letter {self._target}.", hint=SUBSCRIBE_HINT)
        if reason.value in REJECTED_COPIES:
            return CopyRejected(f"The server refuses it: {str(reason).lower()}.")
        if reason.value == NOT_AUTHORIZED:
            return UpstreamError(f"{what}: {str(reason).lower()}.", hint=WRITE_HINT)
        return None if reason.value < FAILURE else rejected(what, reason)


def _user_properties(copy: DeadLetterCopy, decode: str | None) -> list[tuple[str, str]]:
    """Return the headers of a copy. Attributes of a CloudEvent have the names that its sender gave them."""
    pairs = copied_headers(copy, decode, has_key=False)
    prefix = ATTRIBUTE_PREFIX if any(name == ATTRIBUTE_PREFIX + SPEC_VERSION for name, _ in pairs) else ""
    named = [(name.removeprefix(prefix), value) for name, value in pairs if len(value) <= MAX_VALUE_BYTES]
    return [*text_headers([(name, value) for name, value in named if _is_valid(name)], _is_valid).items()]


def _is_valid(text: str) -> bool:
    """Return whether servers and clients take the text. They may end the connection for control characters, for code points without a
    character, and for a byte order mark.
    """
    return len(text.encode()) <= MAX_TEXT_BYTES and not any(category(char) == "Cc" or _is_invalid(ord(char)) for char in text)


def _is_invalid(code: int) -> bool:
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF or code == BYTE_ORDER_MARK


def _size_of(user_property: tuple[str, str]) -> int:
    return PROPERTY_OVERHEAD_BYTES + sum(len(text.encode()) for text in user_property)


def _ignore(_: object) -> None:
    """Ignore a message, and the end of the connection: what waits for a confirmation reports it."""


def make_sender(upstream: Mqtt) -> MqttDeadLetterSender:
    """Return the sender to the dead-letter topic of an upstream."""
    subscription = upstream.subscription()
    if subscription.dead_letter_topic is None:
        raise UpstreamError(f"{upstream.stream_key()} has no dead-letter topic.")
    return MqttDeadLetterSender(subscription, subscription.dead_letter_topic)
