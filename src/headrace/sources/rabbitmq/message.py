"""Messages of RabbitMQ as raw events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from headrace.core.values.text import id_part
from headrace.sources.amqp_headers import header_bytes, header_name
from headrace.sources.decoding import Decoder, decoded_message
from headrace.triggers.raw_event import Message

DELIVERY_COUNT: Final = "x-delivery-count"
"""The header by which a quorum queue counts the deliveries that were not acknowledged."""
STREAM_OFFSET: Final = "x-stream-offset"
"""The header of a message from a stream."""
REDELIVERED: Final = "redelivered"
PROPERTIES: Final = {
    "content_type": "content-type",
    "content_encoding": "content-encoding",
    "correlation_id": "correlation-id",
    "reply_to": "reply-to",
    "message_type": "type",
    "user_id": "user-id",
    "app_id": "app-id",
    "priority": "priority",
    "expiration": "expiration",
}
"""Properties that become headers, by their names in the client."""


def raw_event(message: Any, queue: str, decode: Decoder, *, is_only_queue: bool) -> Message:
    """Return the raw event of a message as the client delivers it. `is_only_queue` says that its id is unique without the queue."""
    properties = message.header.properties
    headers: Mapping[str, Any] = properties.headers or {}
    delivery = message.delivery
    return decoded_message(
        decode,
        message.body or None,
        queue,
        None,
        key=delivery.routing_key,
        delivery=_deliveries(headers, redelivered=bool(delivery.redelivered)),
        headers=_headers(headers, properties, delivery),
        timestamp_ms=_milliseconds(properties.timestamp),
        id=_id(properties.message_id, None if is_only_queue else queue),
    )


def stream_event(message: Any, lane: str, decode: Decoder) -> Message:
    """Return the raw event of a message from a stream. Its position is its offset, and the id of its sender is the header `message-id`."""
    properties = message.header.properties
    headers: Mapping[str, Any] = {name: value for name, value in (properties.headers or {}).items() if name != STREAM_OFFSET}
    entries = [entry for entry in _headers(headers, properties, message.delivery) if entry[0] != REDELIVERED]
    if properties.message_id:
        entries.append(("message-id", header_bytes(properties.message_id)))
    return decoded_message(
        decode,
        message.body or None,
        lane,
        offset_of(message),
        key=message.delivery.routing_key,
        headers=entries,
        timestamp_ms=_milliseconds(properties.timestamp),
    )


def offset_of(message: Any) -> int | None:
    """Return the offset of a message in its stream, or None if a queue has delivered it."""
    offset = (message.header.properties.headers or {}).get(STREAM_OFFSET)
    return offset if isinstance(offset, int) else None


def delivery_count(message: Any) -> int:
    """Return how often the message was delivered before without an acknowledgement, as far as the queue counts it."""
    count = (message.header.properties.headers or {}).get(DELIVERY_COUNT)
    return count if isinstance(count, int) else 0


def is_from_stream(message: Any) -> bool:
    """Return whether a stream has delivered the message, not a queue."""
    return offset_of(message) is not None


def _id(message_id: Any, queue: str | None) -> str | None:
    if not isinstance(message_id, str) or not message_id:
        return None
    return message_id if queue is None else f"{id_part(queue)}/{message_id}"


def _deliveries(headers: Mapping[str, Any], *, redelivered: bool) -> int | None:
    """Return the number of deliveries, or None if the queue does not count and it is not the first."""
    count = headers.get(DELIVERY_COUNT)
    if isinstance(count, int):
        return count + 1
    return None if redelivered else 1


def _headers(headers: Mapping[str, Any], properties: Any, delivery: Any) -> list[tuple[str, bytes | None]]:
    """Return the sender's headers, then the properties and what the server says of the delivery."""
    entries = [(header_name(name), header_bytes(value)) for name, value in headers.items()]
    for attribute, name in PROPERTIES.items():
        value = getattr(properties, attribute)
        if value not in (None, ""):
            entries.append((name, header_bytes(value)))
    entries.append(("exchange", str(delivery.exchange or "").encode()))
    entries.append((REDELIVERED, b"true" if delivery.redelivered else b"false"))
    return entries


def _milliseconds(timestamp: Any) -> int | None:
    return int(timestamp.timestamp() * 1_000) if isinstance(timestamp, datetime) else None
