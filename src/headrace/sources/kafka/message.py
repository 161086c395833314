"""Messages of Kafka as raw events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.sources.decoding import DECODERS, Decoder, decode_or_reason
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


def open_decoder(decode: KafkaDecoding, connection: Connection | None) -> tuple[Decoder, SchemaRegistry | None]:
    """Return the decoder of values, and the schema registry that it reads, if there is a connection to one. Raises `UpstreamError`."""
    if connection is None:
        return DECODERS["json" if decode == CONFLUENT else decode], None
    from headrace.sources.schema_registry.registry import SchemaRegistry
    from headrace.sources.schema_registry.wire_format import wire_format_decoder

    registry = SchemaRegistry(connection)
    try:
        registry.check()
    except Exception:
        registry.close()
        raise
    return wire_format_decoder(registry), registry
