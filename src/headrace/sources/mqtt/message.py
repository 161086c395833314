"""Messages of MQTT as raw events. Pure."""

from __future__ import annotations

from typing import Final

from headrace.errors import MalformedEvent
from headrace.sources.decoding import ATTRIBUTE_PREFIX, Decoded, Decoder, decoded_message
from headrace.sources.mqtt import publish_packet
from headrace.sources.mqtt.publish_packet import ReceivedMessage
from headrace.triggers.raw_event import Message, RawHeaders

PROPERTIES: Final = {
    publish_packet.CONTENT_TYPE: "content-type",
    publish_packet.RESPONSE_TOPIC: "response-topic",
    publish_packet.CORRELATION_DATA: "correlation-data",
    publish_packet.PAYLOAD_FORMAT: "payload-format",
    publish_packet.MESSAGE_EXPIRY: "message-expiry",
}
"""Properties that become headers."""
SPEC_VERSION: Final = "specversion"
"""The user property by which a CloudEvent in binary mode is known. Its attributes are user properties without a prefix."""


def raw_event(message: ReceivedMessage, lane: str, decode: Decoder) -> Message:
    """Return the raw event of a message. Its key is the topic. Without a payload, its value is null."""

    def checked(value: bytes | None, headers: RawHeaders) -> Decoded:
        if message.malformed is not None:
            raise MalformedEvent(message.malformed)
        return decode(value, headers)

    return decoded_message(
        checked,
        message.payload or None,
        lane,
        None,
        key=message.topic,
        delivery=None if message.is_repeated else 1,
        headers=_headers(message),
    )


def _headers(message: ReceivedMessage) -> list[tuple[str, bytes | None]]:
    """Return the user properties, then the other properties and flags."""
    user = message.user_properties
    prefix = ATTRIBUTE_PREFIX if any(name == SPEC_VERSION for name, _ in user) else ""
    headers: list[tuple[str, bytes | None]] = [(prefix + name, value) for name, value in user]
    headers += [(name, message.properties[kind]) for kind, name in PROPERTIES.items() if kind in message.properties]
    headers.append(("qos", str(message.qos).encode()))
    headers.append(("retain", b"true" if message.is_retained else b"false"))
    headers.append(("redelivered", b"true" if message.is_repeated else b"false"))
    return headers
