"""Packets with messages of MQTT 5, as a server sends them. Pure.

The parser of the client library refuses a byte order mark within a text, which the protocol allows. Its time rises with the square of the
number of properties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

MAX_USER_PROPERTIES: Final = 10_000
"""A message with more of them is malformed."""
MAX_NUMBER_BYTES: Final = 4
"""Bytes of a number of variable length."""

PAYLOAD_FORMAT: Final = 1
MESSAGE_EXPIRY: Final = 2
CONTENT_TYPE: Final = 3
RESPONSE_TOPIC: Final = 8
CORRELATION_DATA: Final = 9
SUBSCRIPTION_ID: Final = 11
TOPIC_ALIAS: Final = 35
USER_PROPERTY: Final = 38
_INTEGERS: Final[Mapping[int, int]] = {PAYLOAD_FORMAT: 1, MESSAGE_EXPIRY: 4, TOPIC_ALIAS: 2}
"""The properties that are integers, with their bytes."""
_BINARY: Final = frozenset({CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION_DATA})
"""The properties with a length of two bytes before them."""


class ReceivedMessage(NamedTuple):
    """A message of a server.

    `topic` is None if it is not UTF-8. `packet` is the id of the packet, or None with QoS 0. `properties` has the bytes of each property,
    integers as decimal digits. `malformed` is the reason why the user properties are left out, or None.
    """

    topic: str | None
    packet: int | None
    qos: int
    is_repeated: bool
    is_retained: bool
    payload: bytes
    user_properties: Sequence[tuple[str, bytes]] = ()
    properties: Mapping[int, bytes] = {}
    malformed: str | None = None


def parse_publish(command: int, packet: bytes) -> ReceivedMessage:
    """Return the message of a packet: its first byte, and the bytes after its length. Raises `ValueError` if it is not one of MQTT 5."""
    qos = command >> 1 & 3
    topic, at = _binary(packet, 0)
    packet_id = None
    if qos:
        packet_id, at = _integer(packet, at, 2)
    size, at = _number(packet, at)
    end = at + size
    user_properties: list[tuple[str, bytes]] = []
    properties: dict[int, bytes] = {}
    count = 0
    while at < end:
        kind, at = _integer(packet, at, 1)
        if kind == USER_PROPERTY:
            name, at = _binary(packet, at)
            value, at = _binary(packet, at)
            count += 1
            if count <= MAX_USER_PROPERTIES:
                user_properties.append((name.decode(errors="replace"), value))
        elif kind in _BINARY:
            properties[kind], at = _binary(packet, at)
        elif kind in _INTEGERS:
            number, at = _integer(packet, at, _INTEGERS[kind])
            properties[kind] = str(number).encode()
        elif kind == SUBSCRIPTION_ID:
            _, at = _number(packet, at)
        else:
            raise ValueError(f"a message has the unknown property {kind}")
    if at != end or end > len(packet):
        raise ValueError("the properties of a message have another length")
    malformed = None
    if count > MAX_USER_PROPERTIES:
        user_properties.clear()
        malformed = f"It has {count:,} user properties, at most {MAX_USER_PROPERTIES:,} are read."
    return ReceivedMessage(
        _text(topic), packet_id, qos, bool(command & 8), bool(command & 1), packet[end:], user_properties, properties, malformed
    )


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _binary(packet: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes at a place, which have their length before them, and the place after them."""
    size, at = _integer(packet, at, 2)
    end = at + size
    if end > len(packet):
        raise ValueError("a message ends within a text")
    return packet[at:end], end


def _integer(packet: bytes, at: int, size: int) -> tuple[int, int]:
    """Return the integer of `size` bytes at a place, and the place after it."""
    end = at + size
    if end > len(packet):
        raise ValueError("a message ends within a number")
    return int.from_bytes(packet[at:end], "big"), end


def _number(packet: bytes, at: int) -> tuple[int, int]:
    """Return the number of variable length at a place, and the place after it."""
    number = 0
    for position in range(MAX_NUMBER_BYTES):
        digit, at = _integer(packet, at, 1)
        number |= (digit & 127) << 7 * position
        if digit < 128:
            return number, at
    raise ValueError("a message has a number of more than four bytes")
