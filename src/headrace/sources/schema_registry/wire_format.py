"""Confluent's wire format: a byte 0, the id of the schema in four bytes, and the value."""

from __future__ import annotations

from typing import Final

from headrace.errors import MalformedEvent
from headrace.sources.decoding import NULL, Decoded, Decoder
from headrace.sources.schema_registry.registry import SchemaRegistry
from headrace.triggers.raw_event import RawHeaders

MAGIC: Final = 0
HEADER_BYTES: Final = 5


def wire_format_decoder(registry: SchemaRegistry) -> Decoder:
    """Return the decoder of values whose schemas are in a registry.

    It raises `MalformedEvent` as each decoder does, and `StreamError` or `UpstreamError` if the registry does not answer.
    """

    def decode(value: bytes | None, headers: RawHeaders) -> Decoded:
        del headers
        if value is None:
            return Decoded(NULL)
        if len(value) < HEADER_BYTES or value[0] != MAGIC:
            raise MalformedEvent("Not in Confluent's wire format: it does not begin with a byte 0 and the id of a schema.")
        schema_id = int.from_bytes(value[1:HEADER_BYTES], "big")
        return Decoded(registry.decoder(schema_id)(value[HEADER_BYTES:]))

    return decode
