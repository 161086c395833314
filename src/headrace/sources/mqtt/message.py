"""Messages of MQTT as raw events. Pure."""

from __future__ import annotations

from typing import Any, Final

from headrace.sources.decoding import ATTRIBUTE_PREFIX, Decoder, decoded_message
from headrace.triggers.raw_event import Message

PROPERTIES: Final = {
    "ContentType": "content-type",
    "ResponseTopic": "response-topic",
    "CorrelationData": "correlation-data",
    "PayloadFormatIndicator": "payload-format",
    "MessageExpiryInterval": "message-expiry",
}
"""Properties that become headers, by their names in the client."""
SPEC_VERSION: Final = "specversion"
"""The user property by which a CloudEvent in binary mode is known. Its attributes are user properties without a prefix."""


def raw_event(message: Any, topic: str | None, lane: str, decode: Decoder) -> Message:
    """Return the raw event of a message as the client delivers it. Its key is the topic. Without a payload, its value is null."""
    return decoded_message(
        decode,
        bytes(message.payload) or None,
        lane,
        None,
        key=topic,
        delivery=None if message.dup else 1,
        headers=_headers(message),
    )


def _headers(message: Any) -> list[tuple[str, bytes | None]]:
    """Return the user properties, then the other properties and flags."""
    user: list[tuple[str, str]] = getattr(message.properties, "UserProperty", [])
    prefix = ATTRIBUTE_PREFIX if any(name == SPEC_VERSION for name, _ in user) else ""
    headers: list[tuple[str, bytes | None]] = [(prefix + name, value.encode(errors="surrogatepass")) for name, value in user]
    for attribute, name in PROPERTIES.items():
        value = getattr(message.properties, attribute, None)
        if value is not None:
            headers.append((name, value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")))
    headers.append(("qos", str(message.qos).encode()))
    headers.append(("retain", b"true" if message.retain else b"false"))
    headers.append(("redelivered", b"true" if message.dup else b"false"))
    return headers
