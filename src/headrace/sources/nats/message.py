"""Messages of NATS as raw events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.sources.declared_decoder import Decoding, decoder_of
from headrace.sources.decoding import ATTRIBUTE_PREFIX, decode_again, decoded_message
from headrace.sources.nats.lanes import Origin
from headrace.triggers.raw_event import Message

NS_PER_MS: Final = 1_000_000
NATS_PREFIX: Final = "ce-"
"""Prefix of the attributes of a CloudEvent in headers of NATS."""


def raw_event(data: bytes, headers: Mapping[str, str] | None, *, subject: str, lane: str, origin: Origin, decode: Decoding) -> Message:
    """Return the raw event of a message. Its key is the subject. Without data, its value is null.

    A value in another format than the declared one becomes a dead letter. With `cloudevents`, headers such as `ce-id` are named `ce_id`.
    """
    pairs = [(_header_name(str(name), decode), value.encode()) for name, value in headers.items()] if headers else ()
    return decoded_message(
        decoder_of(decode),
        data or None,
        lane,
        origin.sequence,
        key=subject,
        delivery=origin.deliveries,
        headers=pairs,
        timestamp_ms=origin.time_ns // NS_PER_MS,
    )


def decode_message_again(message: Message, decode: Decoding) -> Message:
    """Return a malformed message, decoded again. Its headers are named as `raw_event` names them for this format."""
    return decode_again(decoder_of(decode), message, [(_header_name(name, decode), value) for name, value in message.metadata.headers])


def _header_name(name: str, decode: Decoding) -> str:
    if decode == "cloudevents" and name.lower().startswith(NATS_PREFIX):
        return ATTRIBUTE_PREFIX + name[len(NATS_PREFIX) :]
    return name
