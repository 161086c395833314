"""Packets with messages: equal to those that the client library writes, and hostile ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from headrace.errors import MalformedEvent
from headrace.sources.decoding import Decoded, decode_json
from headrace.sources.mqtt.message import raw_event
from headrace.sources.mqtt.publish_packet import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MAX_USER_PROPERTIES,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    parse_publish,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff"), max_size=20)


def text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def packet(properties: bytes, *, topic: bytes = b"a/b", payload: bytes = b"1", packet_id: bytes = b"\0\7") -> bytes:
    size, number = len(properties), b""
    while True:
        size, digit = divmod(size, 128)
        number += bytes([digit | (128 if size else 0)])
        if not size:
            return text(topic) + packet_id + number + properties + payload


@given(
    user=st.lists(st.tuples(TEXTS, TEXTS), max_size=5),
    correlation=st.binary(max_size=20),
    content_type=TEXTS,
    expiry=st.integers(0, 2**32 - 1),
    ids=st.lists(st.integers(1, 268_435_455), max_size=3),
    payload=st.binary(max_size=20),
    flags=st.sampled_from([0, 1, 8, 9]),
)
def test_a_packet_is_read_as_the_library_writes_it(
    user: list[tuple[str, str]], correlation: bytes, content_type: str, expiry: int, ids: list[int], payload: bytes, flags: int
) -> None:
    properties: Any = Properties(PacketTypes.PUBLISH)
    for pair in user:
        properties.UserProperty = pair
    properties.CorrelationData = correlation
    properties.ContentType = content_type
    properties.MessageExpiryInterval = expiry
    properties.PayloadFormatIndicator = 1
    properties.ResponseTopic = "answers"
    for one in ids:
        properties.SubscriptionIdentifier = one
    written = text("straße".encode()) + b"\x01\x02" + properties.pack() + payload
    message = parse_publish(0x32 | flags, written)
    assert (message.topic, message.packet, message.qos, message.payload) == ("straße", 258, 1, payload)
    assert (message.is_repeated, message.is_retained, message.malformed) == (bool(flags & 8), bool(flags & 1), None)
    assert list(message.user_properties) == [(name, value.encode()) for name, value in user]
    assert message.properties == {
        CORRELATION_DATA: correlation,
        CONTENT_TYPE: content_type.encode(),
        MESSAGE_EXPIRY: str(expiry).encode(),
        PAYLOAD_FORMAT: b"1",
        RESPONSE_TOPIC: b"answers",
    }


def test_texts_that_the_library_refuses_are_read_as_their_bytes() -> None:
    hostile = "\ufeffmark".encode()
    message = parse_publish(0x32, packet(b"&" + text(hostile) + text(b"\xff\0") + b"\x03" + text(hostile)))
    assert list(message.user_properties) == [("\ufeffmark", b"\xff\0")]
    assert message.properties == {CONTENT_TYPE: hostile}
    assert parse_publish(0x32, packet(b"", topic=b"\xff")).topic is None
    assert parse_publish(0x30, packet(b"", packet_id=b"")).packet is None


def test_a_message_with_too_many_user_properties_is_malformed() -> None:
    one = b"&" + text(b"") + text(b"")
    message = parse_publish(0x32, packet(one * MAX_USER_PROPERTIES))
    assert (message.malformed, len(message.user_properties)) == (None, MAX_USER_PROPERTIES)
    message = parse_publish(0x32, packet(one * (MAX_USER_PROPERTIES + 1)))
    raw = raw_event(message, "lane", decode_json)
    assert (raw.malformed, raw.data, raw.key) == ("It has 10,001 user properties, at most 10,000 are read.", b"1", "a/b")
    with pytest.raises(MalformedEvent):
        _ = raw.value


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (b"", "within a number"),
        (b"\0\5ab", "within a text"),
        (text(b"a") + b"\0", "within a number"),
        (text(b"a") + b"\0\1" + b"\xff\xff\xff\xff\x01", "more than four bytes"),
        (text(b"a") + b"\0\1" + b"\x05", "within a number|another length"),
        (packet(b"\x7f"), "unknown property 127"),
        (packet(b"&" + text(b"a"), payload=b""), "within a number"),
        (packet(b"\x02\0", payload=b"xyzxyz"), "another length"),
    ],
)
def test_a_packet_that_breaks_the_protocol_is_refused(hostile: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_publish(0x32, hostile)


@given(st.binary(max_size=60), st.integers(0x30, 0x3F))
def test_any_bytes_are_a_message_or_refused(hostile: bytes, command: int) -> None:
    try:
        message = parse_publish(command, hostile)
    except ValueError:
        return
    assert raw_event(message, "lane", lambda value, _: Decoded(value or b"null")).lane == "lane"
