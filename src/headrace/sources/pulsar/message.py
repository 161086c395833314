"""Messages of Pulsar as raw events."""

from __future__ import annotations

from typing import Any, Final

from headrace.sources.declared_decoder import Decoding
from headrace.sources.decoding import ATTRIBUTE_PREFIX, Decoder, decoded_message
from headrace.sources.pulsar.lane import MessageId
from headrace.triggers.raw_event import Message

PULSAR_PREFIX: Final = "ce-"
"""Prefix of the attributes of a CloudEvent in properties of Pulsar."""
EVENT_TIME: Final = "event-time"
"""The header with the time that the sender gave the event, in milliseconds since 1970."""
ORDERING_KEY: Final = "ordering-key"


def message_id_of(client_id: Any) -> MessageId:
    """Return the id of a message as the client has it."""
    return MessageId(client_id.ledger_id(), client_id.entry_id(), client_id.batch_index())


def raw_event(message: Any, lane: str, id: MessageId, decode: Decoder, decoding: Decoding) -> Message:
    """Return the raw event of a message of the client. A message without a value is null. Properties become headers.

    The id of a ledger is unique in its cluster. A cluster that is set up again counts from 0, so the id of the message has its publish
    time too. Both are the same at each delivery.
    """
    published = int(message.publish_timestamp())
    headers = [(_header_name(name, decoding), value.encode(errors="surrogatepass")) for name, value in message.properties().items()]
    if message.event_timestamp():
        headers.append((EVENT_TIME, str(message.event_timestamp()).encode()))
    if message.ordering_key():
        headers.append((ORDERING_KEY, message.ordering_key().encode(errors="surrogatepass")))
    return decoded_message(
        decode,
        None if message.has_null_value() else message.data(),
        lane,
        None,
        key=message.partition_key() or None,
        headers=headers,
        timestamp_ms=published,
        id=f"{id.ledger}:{id.entry}:{id.batch_index}:{published}",
    )


def _header_name(name: str, decoding: Decoding) -> str:
    if decoding == "cloudevents" and name.lower().startswith(PULSAR_PREFIX):
        return ATTRIBUTE_PREFIX + name[len(PULSAR_PREFIX) :]
    return name
