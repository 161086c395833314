"""Read and write encoded messages of AMQP 1.0, section by section, so that what was sent is delivered byte for byte."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from proton import Data, Described, symbol, timestamp, ulong  # type: ignore[import-not-found]
from proton import Message as ProtonMessage

from .entities import Lock, Message, Stored

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = range(0x70, 0x79)
BODY: Final = {DATA, SEQUENCE, VALUE}
FIXED_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
SMALL, LARGE = {0xA, 0xC, 0xE}, {0xB, 0xD, 0xF}
OF_SERVICE: Final = {  # a sender's value would mislead the receiver
    "x-opt-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-locked-until",
    "x-opt-lock-token",
    "x-opt-message-state",
    "x-opt-deadletter-source",
}
DEFERRED: Final = 1


class EncodingError(Exception):
    """Bytes are not an encoded message."""


def sections(encoded: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the code of each section of a message, the encoded section, and its encoded value. Raise `EncodingError` for other bytes."""
    at = 0
    while at < len(encoded):
        start = at
        if encoded[at : at + 2] == b"\x00\x53":
            code, at = encoded[at + 2] if at + 2 < len(encoded) else 0, at + 3
        elif encoded[at : at + 2] == b"\x00\x80":
            code, at = int.from_bytes(encoded[at + 2 : at + 10], "big"), at + 10
        else:
            raise EncodingError("no section begins here")
        if not HEADER <= code <= FOOTER:
            raise EncodingError(f"there is no section {code:#x}")
        end = _end_of_value(encoded, at)
        yield code, encoded[start:end], encoded[at:end]
        at = end


def _end_of_value(encoded: bytes, at: int) -> int:
    """Return where the value ends that begins at a position. Raise `EncodingError` if the bytes end before."""
    if at >= len(encoded):
        raise EncodingError("a value is missing")
    kind = encoded[at]
    if kind == 0:
        return _end_of_value(encoded, _end_of_value(encoded, at + 1))
    at, group = at + 1, kind >> 4
    if group in FIXED_WIDTHS:
        end = at + FIXED_WIDTHS[group]
    elif group in SMALL and at < len(encoded):
        end = at + 1 + encoded[at]
    elif group in LARGE and at + 4 <= len(encoded):
        end = at + 4 + int.from_bytes(encoded[at : at + 4], "big")
    else:
        raise EncodingError(f"there is no type {kind:#x}")
    if end > len(encoded):
        raise EncodingError("a value is cut off")
    return end


def encode(value: Any) -> bytes:
    """Return the encoding of a value."""
    data = Data()
    data.put_object(value)
    return bytes(data.encode())


def decode(encoded: bytes) -> Any:
    """Return an encoded value, without its descriptor."""
    data = Data()
    data.decode(encoded)
    data.rewind()
    data.next()
    value = data.get_object()
    return value.value if isinstance(value, Described) else value


def parse(encoded: bytes) -> Message:
    """Return the message that a sender has encoded. Raise `EncodingError` if there is no message."""
    header, annotations, count, content = b"\x40\x40\x40\x40", b"", 0, list[bytes]()
    message_id: object = None
    session_id: str | None = None
    for code, section, value in sections(encoded):
        if code == HEADER:
            fields = [*decode(value), None, None, None, None][:4]
            header = b"".join(encode(one) for one in fields)
        elif code == ANNOTATIONS:
            pairs = {key: one for key, one in (decode(value) or {}).items() if str(key) not in OF_SERVICE}
            annotations, count = b"".join(encode(symbol(key)) + encode(one) for key, one in pairs.items()), len(pairs)
        elif code != DELIVERY_ANNOTATIONS:
            content.append(section)
            if code == PROPERTIES:
                fields = [*decode(value), *[None] * 13][:13]
                message_id, session_id = fields[0], fields[10]
    return Message(b"".join(content), header, annotations, count, message_id, session_id)


def parse_batch(encoded: bytes) -> list[Message]:
    """Return the messages of a transfer: those in a batch, else the one.

    A batch is a message whose data sections are messages. Proton does not give the format of a transfer, so a batch is recognized by that.
    Raise `EncodingError` if the transfer has no message.
    """
    body = [(code, value) for code, _, value in sections(encoded) if code in BODY]
    if body and all(code == DATA for code, _ in body):
        inner = [binary(value) for _, value in body]
        if all(_is_message(one) for one in inner):
            return [parse(one) for one in inner]
    return [parse(encoded)]


def _is_message(encoded: bytes) -> bool:
    try:
        codes = [code for code, _, _ in sections(encoded)]
    except EncodingError:
        return False
    return codes == sorted(codes) and any(code in BODY for code in codes)


def binary(value: bytes) -> bytes:
    """Return the bytes of an encoded binary value."""
    return value[2:] if value[0] == 0xA0 else value[5:]


def body_of(message: Message) -> bytes:
    """Return the data of a message, or the encoded value if its body has another type."""
    return b"".join(binary(value) if code == DATA else value for code, _, value in sections(message.content) if code in BODY)


def properties_of(message: Message) -> dict[str, Any]:
    """Return the application properties of a message."""
    values = [value for code, _, value in sections(message.content) if code == APPLICATION]
    return dict(decode(values[0]) or {}) if values else {}


def describe_dead(message: Message, reason: str, description: str) -> Message:
    """Return a message with the application properties of a dead letter."""
    properties = properties_of(message) | {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
    section = encode(Described(ulong(APPLICATION), properties))
    before = [one for code, one, _ in sections(message.content) if code < APPLICATION]
    after = [one for code, one, _ in sections(message.content) if code > APPLICATION]
    content = b"".join([*before, section, *after])
    return Message(content, message.header, message.annotations, message.annotation_count, message.message_id, message.session_id)


def build(body: bytes, message_id: str | None, session_id: str | None, properties: dict[str, Any] | None) -> Message:
    """Return a message as a client would send it."""
    message = ProtonMessage(body=body, inferred=True, id=message_id, group_id=session_id, properties=properties)
    return parse(bytes(message.encode()))


def _annotation(name: str, kind: int) -> bytes:
    return encode(symbol(name)) + bytes([kind])


SEQUENCE_NUMBER: Final = _annotation("x-opt-sequence-number", 0x81)
ENQUEUED_TIME: Final = _annotation("x-opt-enqueued-time", 0x83)
LOCKED_UNTIL: Final = _annotation("x-opt-locked-until", 0x83)
MESSAGE_STATE: Final = _annotation("x-opt-message-state", 0x54)


def milliseconds(seconds: float) -> Any:
    """Return a time as AMQP has it."""
    return timestamp(int(seconds * 1_000))


def render(stored: Stored, lock: Lock | None) -> bytes:
    """Return the encoded message that a receiver gets; one that is only browsed has no lock."""
    message = stored.message
    pairs = [
        SEQUENCE_NUMBER + struct.pack(">q", stored.sequence),
        ENQUEUED_TIME + struct.pack(">q", int(stored.enqueued * 1_000)),
    ]
    if lock:
        pairs.append(LOCKED_UNTIL + struct.pack(">q", int(lock.until * 1_000)))
    if stored.is_deferred:
        pairs.append(MESSAGE_STATE + bytes([DEFERRED]))
    items = b"".join(pairs) + message.annotations
    count = 2 * (len(pairs) + message.annotation_count)
    header = b"\x05" + message.header + b"\x70" + struct.pack(">I", stored.delivery_count)
    return b"".join(
        (
            b"\x00\x53\x70\xc0",
            bytes([len(header)]),
            header,
            b"\x00\x53\x72\xd1",
            struct.pack(">II", len(items) + 4, count),
            items,
            message.content,
        )
    )
