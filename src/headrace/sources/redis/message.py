"""Raw events of entries, by the field that has the value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from headrace.errors import MalformedEvent
from headrace.sources.declared_decoder import Decoding, decoder_of
from headrace.sources.decoding import NULL, Decoded, Decoder, decode_again, decoded_message
from headrace.sources.redis.entry_ids import time_of
from headrace.triggers.raw_event import Message, RawHeaders

if TYPE_CHECKING:
    from headrace.sources.redis.lane import Lane

_encode: Final = msgspec.json.Encoder().encode


class StreamEntry(NamedTuple):
    """The broker payload: an entry of a lane."""

    lane: Lane
    id: bytes
    position: int


class EntryFormat(NamedTuple):
    """How entries become raw events. `payload` is the field with the value, or None for all fields; `key` the one with the key."""

    payload: str | None
    key: str | None
    decode: Decoding


def decode_fields(value: bytes | None, headers: RawHeaders) -> Decoded:
    """Return the fields as one JSON object of texts. The last value of a name counts."""
    del value
    texts: dict[str, str] = {}
    for name, content in headers:
        try:
            texts[name] = (content or b"").decode()
        except UnicodeDecodeError:
            raise MalformedEvent(f"The field {name!r} is not UTF-8.") from None
    return Decoded(_encode(texts))


def raw_event(format: EntryFormat, entry: StreamEntry, fields: Sequence[bytes], delivery: int) -> Message:
    """Return the raw event of an entry, whose names and values alternate in `fields`."""
    value: bytes | None = None
    key: str | None = None
    headers: list[tuple[str, bytes | None]] = []
    for name_bytes, content in zip(fields[::2], fields[1::2], strict=True):
        name = name_bytes.decode(errors="replace")
        if name == format.payload:
            value = content
        else:
            headers.append((name, content))
        if name == format.key:
            key = content.decode(errors="replace")
    decode: Decoder = decode_fields if format.payload is None else decoder_of(format.decode)
    if format.payload is not None and value is None:
        decode = _without_field(format.payload)
    return decoded_message(
        decode,
        value,
        entry.lane.name,
        entry.position,
        key=key,
        delivery=delivery,
        headers=headers,
        timestamp_ms=time_of(entry.position),
    )


def decode_entry_again(format: EntryFormat, message: Message) -> Message:
    """Return a malformed entry, decoded again.

    Its data are the value of the field that was declared before, if there was one, and its headers the other fields. An entry of which
    that field is not known keeps its reason.
    """
    headers = message.metadata.headers
    values = [content for name, content in headers if name == format.payload]
    if format.payload is None:
        return message if message.data != NULL else decode_again(decode_fields, message)
    if values:
        others = [(name, content) for name, content in headers if name != format.payload]
        return decode_again(lambda _, pairs: decoder_of(format.decode)(values[-1], pairs), message, others)
    if message.malformed == _missing(format.payload):
        return message
    return decode_again(decoder_of(format.decode), message)


def _missing(name: str) -> str:
    return f"The entry has no field {name!r}."


def _without_field(name: str) -> Decoder:
    def decode(value: bytes | None, headers: RawHeaders) -> Decoded:
        del value, headers
        raise MalformedEvent(_missing(name))

    return decode
