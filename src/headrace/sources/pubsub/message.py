"""Messages of Pub/Sub as raw events. Pure."""

from __future__ import annotations

from typing import Any

from headrace.sources.decoding import Decoder, decoded_message
from headrace.triggers.raw_event import Message

CLOUD_EVENTS_PREFIX = "ce-"


def raw_event(received: Any, lane: str, decode: Decoder) -> Message:
    """Return the raw event of a received message, as the client's protocol buffer describes it."""
    message = received.message
    headers = [(_name(name), value.encode(errors="surrogatepass")) for name, value in message.attributes.items()]
    time = message.publish_time
    return decoded_message(
        decode,
        message.data or None,
        lane,
        None,
        key=message.ordering_key or None,
        delivery=received.delivery_attempt or None,  # 0 without a dead-letter policy: not counted
        headers=headers,
        timestamp_ms=time.seconds * 1_000 + time.nanos // 1_000_000 if message.HasField("publish_time") else None,
        id=message.message_id,
    )


def _name(name: str) -> str:
    """Return the name of a header. Attributes of CloudEvents get the prefix that the decoder knows."""
    return "ce_" + name[len(CLOUD_EVENTS_PREFIX) :] if name.startswith(CLOUD_EVENTS_PREFIX) else name
