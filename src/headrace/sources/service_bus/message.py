"""Messages of Service Bus as raw events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import structlog

from headrace.core.values.text import describe_error
from headrace.errors import HeadraceError
from headrace.sources.amqp_headers import header_bytes, header_name
from headrace.sources.decoding import Decoder, decoded_message
from headrace.triggers.raw_event import Message

PROPERTIES: Final = {
    "message_id": "message-id",
    "correlation_id": "correlation-id",
    "content_type": "content-type",
    "content_encoding": "content-encoding",
    "subject": "subject",
    "to": "to",
    "reply_to": "reply-to",
    "reply_to_group_id": "reply-to-session-id",
}
"""Properties that become headers, by their names in the client."""
SEQUENCE_NUMBER: Final = b"x-opt-sequence-number"
ENQUEUED: Final = b"x-opt-enqueued-time"
PARTITION_KEY: Final = b"x-opt-partition-key"

log = structlog.get_logger(__name__)


def event_of(message: Any, lane: str, decode: Decoder) -> Message:
    """Return the raw event of a message. It is malformed if its decoding fails in an unexpected way.

    Otherwise one message would end the stream at each of its deliveries.
    """
    try:
        return raw_event(message, lane, decode)
    except (HeadraceError, MemoryError):  # not of the message: a decoder that cannot be imported, or the machine
        raise
    except Exception as error:
        reason = describe_error(error)
        log.error("message not decoded", lane=lane, message=id_of(message), error=reason)
        return Message(b"null", lane, None, id=id_of(message), malformed=f"The message cannot be decoded: {reason}.")


def raw_event(message: Any, lane: str, decode: Decoder) -> Message:
    """Return the raw event of a message as the client delivers it. Its key is its session, else its partition key."""
    amqp = message.raw_amqp_message
    properties, annotations = amqp.properties, amqp.annotations or {}
    key = session_of(message) or annotations.get(PARTITION_KEY)
    return decoded_message(
        decode,
        body_of(message),
        lane,
        None,
        key=None if key is None else text_of(key),
        delivery=(amqp.header.delivery_count or 0) + 1 if amqp.header is not None else None,
        headers=_headers(amqp.application_properties or {}, properties),
        timestamp_ms=annotations.get(ENQUEUED),
        id=id_of(message),
    )


def id_of(message: Any) -> str:
    """Return the sequence number and the time at which the service stored the message.

    The id that a sender sets may be missing or given twice. The numbers of a queue that was created again begin again.
    """
    annotations = message.raw_amqp_message.annotations or {}
    return f"{annotations.get(SEQUENCE_NUMBER)}-{annotations.get(ENQUEUED)}"


def sequence_number_of(message: Any) -> int:
    """Return the number that the service has given a message. Numbers of a queue increase."""
    return int((message.raw_amqp_message.annotations or {}).get(SEQUENCE_NUMBER) or 0)


def session_of(message: Any) -> str | None:
    """Return the session of a message, or None."""
    properties = message.raw_amqp_message.properties
    session = None if properties is None else properties.group_id
    return None if session is None else text_of(session)


def body_of(message: Any) -> bytes | None:
    """Return the bytes of a message, or None if it has none. A body of AMQP values that are not bytes becomes JSON."""
    amqp = message.raw_amqp_message
    body = amqp.body
    if amqp.body_type.value == "data":
        return b"".join(body) or None
    if amqp.body_type.value == "sequence":
        body = [item for items in body for item in items]
    if isinstance(body, bytes | bytearray | str):
        return header_bytes(body) or None
    return None if body is None else json.dumps(_plain(body), default=str, ensure_ascii=False).encode(errors="surrogatepass")


def text_of(value: Any) -> str:
    """Return a value of AMQP as a text: strings and symbols come as bytes from the client."""
    return bytes(value).decode(errors="replace") if isinstance(value, bytes | bytearray) else str(value)


def _headers(sent: Mapping[Any, Any], properties: Any) -> list[tuple[str, bytes | None]]:
    """Return the application properties, which the sender sets, then the properties."""
    entries = [(header_name(text_of(name)), header_bytes(_header_value(value))) for name, value in sent.items()]
    for attribute, name in PROPERTIES.items():
        value = getattr(properties, attribute, None)
        if value not in (None, "", b""):
            entries.append((name, header_bytes(_header_value(value))))
    return entries


def _header_value(value: Any) -> Any:
    return value if isinstance(value, bytes | bytearray) else _plain(value)


def _plain(value: Any) -> Any:
    """Return a value of AMQP as JSON has it: with texts for bytes, and for the keys of maps."""
    if isinstance(value, Mapping):
        return {text_of(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return text_of(value) if isinstance(value, bytes | bytearray | UUID) else value
