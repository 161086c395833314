"""Messages of Kafka as raw events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.sources.declared_decoder import is_function
from headrace.sources.decoding import DECODERS, NULL, Decoder, decode_or_reason
from headrace.sources.kafka.settings import CONFLUENT, KafkaDecoding
from headrace.triggers.raw_event import Message

if TYPE_CHECKING:
    from headrace.core.connection import Connection
    from headrace.sources.kafka.partitions import Partition
    from headrace.sources.schema_registry.registry import SchemaRegistry


class KafkaMessage(Message):
    """A message of a topic. It is its own broker payload. Other processes get it without its `partition`."""

    __slots__ = ("partition",)

    partition: Partition | None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process: all but the partition, which belongs to the reader."""
        return super().__getstate__() | {"partition": None}


def raw_event(message: Any, decode: Decoder, partition: Partition, offset: int) -> KafkaMessage:
    """Return the raw event of a message of the client library."""
    value, key, (kind, timestamp) = message.value(), message.key(), message.timestamp()
    try:
        headers = message.headers()
    except UnicodeDecodeError:
        headers = None  # the name of a header is not UTF-8
    text, headers, time_ms = None if key is None else key.decode(errors="replace"), headers or (), timestamp if kind else None
    (data, id), reason = decode_or_reason(decode, value, headers)
    event = KafkaMessage(data, partition.lane, offset, text, None, headers, time_ms, id, reason)
    event.partition = partition
    return event


def decode_unread(message: KafkaMessage, decode: Decoder) -> None:
    """Decode the value of a message that was decoded as JSON, which leaves it as it is."""
    value = None if message.data is NULL else message.data  # the same object only for a message without a value
    (message.data, message.id), message.malformed = decode_or_reason(decode, value, message.metadata.headers)


def open_decoder(decode: KafkaDecoding, connection: Connection | None, **settings: float) -> tuple[Decoder, SchemaRegistry | None]:
    """Return the decoder of values, and the schema registry that it reads, if there is a connection to one. Raises `UpstreamError`.

    `settings` are those of the registry. A function of the user is not called by the thread of the client: values stay as they are for
    `decode_unread`.
    """
    if connection is None:
        return DECODERS["json" if decode == CONFLUENT or is_function(decode) else decode], None
    from headrace.sources.schema_registry.registry import SchemaRegistry
    from headrace.sources.schema_registry.wire_format import wire_format_decoder

    registry = SchemaRegistry(connection, **settings)
    try:
        registry.check()
    except Exception:
        registry.close()
        raise
    return wire_format_decoder(registry), registry
