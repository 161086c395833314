"""Messages in the format of AMQP, as the client decodes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._pyamqp._encode import encode_payload, encode_value
from azure.servicebus._pyamqp.message import Header, Properties
from azure.servicebus._pyamqp.message import Message as AmqpMessage
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedEvent
from headrace.sources.decoding import DECODERS, Decoded
from headrace.sources.service_bus.message import body_of, event_of, id_of, raw_event, session_of
from headrace.triggers.raw_event import Message, RawHeaders

TIME = datetime(2026, 12, 1, 12, tzinfo=UTC)
MS = int(TIME.timestamp() * 1_000)
NUMBER = UUID("12345678-1234-5678-1234-567812345678")
ANNOTATIONS, APPLICATION_PROPERTIES, VALUE = 0x72, 0x74, 0x77
"""The codes of sections."""


def section(code: int, value: Any) -> bytes:
    """Return a section with one value. Its own values may be pairs of a type and a value."""
    output = bytearray()
    encode_value(output, {"TYPE": "DESCRIBED", "VALUE": ({"TYPE": "ULONG", "VALUE": code}, typed(value))})
    return bytes(output)


def typed(value: Any) -> Any:
    """Return a value as the encoder takes it."""
    if isinstance(value, tuple):
        return {"TYPE": value[0], "VALUE": value[1]}
    if isinstance(value, dict):
        return {"TYPE": "MAP", "VALUE": [(typed(name), typed(item)) for name, item in value.items()]}
    if isinstance(value, list):
        return {"TYPE": "LIST", "VALUE": [typed(item) for item in value]}
    return {"TYPE": None, "VALUE": value}


def stored(number: int = 7, others: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    """Return the annotations of a message that the service has stored."""
    named = {"x-opt-sequence-number": ("LONG", number), "x-opt-enqueued-time": ("TIMESTAMP", MS)} | {**others}
    return section(ANNOTATIONS, {("SYMBOL", name): value for name, value in named.items()})


def received(*sections: bytes, **parts: Any) -> Any:
    """Return a message of these sections, and the parts that the client encodes."""
    output = bytearray()
    encode_payload(output, AmqpMessage(**parts))
    return ServiceBusReceivedMessage.from_bytes(b"".join(sections) + bytes(output))


def read(message: Any, decode: Any = "json") -> Message:
    return raw_event(message, "orders", DECODERS[decode])


def test_metadata_are_those_of_the_sender_and_the_service() -> None:
    properties = Properties(message_id="m1", content_type=b"application/json", subject="paid", group_id="customer-1")
    message = received(
        stored(), header=Header(delivery_count=2), properties=properties, application_properties={"tenant": "eu"}, data=[b"1"]
    )
    raw = read(message)
    assert (raw.lane, raw.position, raw.id, raw.key, raw.delivery, raw.timestamp) == ("orders", None, f"7-{MS}", "customer-1", 3, TIME)
    assert raw.headers == {"tenant": "eu", "message-id": "m1", "content-type": "application/json", "subject": "paid"}


def test_a_message_without_header_annotations_and_properties_is_read() -> None:
    raw = read(received(data=[b"1"]))
    assert (raw.value, raw.key, raw.delivery, raw.timestamp, raw.headers) == (1, None, None, None, {})


def test_the_first_delivery_has_the_number_one() -> None:
    assert read(received(header=Header(durable=True), data=[b"1"])).delivery == 1
    assert read(received(header=Header(delivery_count=0), data=[b"1"])).delivery == 1


@pytest.mark.parametrize(
    ("session", "partition", "key"),
    [("s", "p", "s"), ("s", None, "s"), (None, "p", "p"), ("", "p", "p"), (None, None, None), ("é", None, "é")],
)
def test_the_key_is_the_session_or_else_the_partition_key(session: str | None, partition: str | None, key: str | None) -> None:
    message = received(stored(others={"x-opt-partition-key": partition}), properties=Properties(group_id=session, subject="x"), data=[b"1"])
    assert session_of(message) == session
    assert read(message).key == key


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        ({"data": [b'{"n":1}']}, b'{"n":1}'),
        ({"data": [b"[1,", b"2,", b"3]"]}, b"[1,2,3]"),
        ({"data": [b"\x00\xff"]}, b"\x00\xff"),
        ({"data": [b"x" * 70_000]}, b"x" * 70_000),
        ({"data": [b""]}, None),
        ({"sequence": [[1, "a"], [{"b": NUMBER}]]}, b'[1, "a", {"b": "12345678-1234-5678-1234-567812345678"}]'),
        ({"value": {"a": {"b": [1, b"c", None, True, 1.5]}}}, b'{"a": {"b": [1, "c", null, true, 1.5]}}'),
    ],
)
def test_a_body_becomes_bytes(parts: dict[str, Any], body: bytes | None) -> None:
    assert body_of(received(**parts)) == body


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ('{"n":"é"}', '{"n":"é"}'.encode()),
        (b"\xff\x00", b"\xff\x00"),
        (("STRING", b"\xff"), b"\xff"),
        (("SYMBOL", "sign"), b"sign"),
        ("", None),
        (b"", None),
        (None, None),
        (0, b"0"),
        (("LONG", -(2**62)), b"-4611686018427387904"),
        (("ULONG", 2**64 - 1), b"18446744073709551615"),
        (1.5, b"1.5"),
        (False, b"false"),
        (NUMBER, f'"{NUMBER}"'.encode()),
        (("TIMESTAMP", MS), str(MS).encode()),
        ({}, b"{}"),
        ([], b"[]"),
        ({"n": ["é", {7: None}]}, '{"n": ["é", {"7": null}]}'.encode()),
        ({b"\xff": ("STRING", b"\xff")}, '{"\ufffd": "\ufffd"}'.encode()),
    ],
)
def test_a_body_of_one_value_becomes_its_bytes_or_json(value: Any, body: bytes | None) -> None:
    assert body_of(received(section(VALUE, value))) == body


def test_a_message_without_a_body_is_null() -> None:
    assert read(received(stored())).value is None


def test_a_body_in_another_format_is_malformed() -> None:
    raw = read(received(stored(), data=[b"\xff"]), "text")
    assert (raw.data, raw.id) == (b"\xff", f"7-{MS}")
    with pytest.raises(MalformedEvent, match="Not UTF-8"):
        _ = raw.value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("é", "é"),
        ("", ""),
        (b"\xff", "\ufffd"),
        (("STRING", b"a\xff"), "a\ufffd"),
        (("SYMBOL", "sign"), "sign"),
        (None, None),
        (True, "true"),
        (("UBYTE", 255), "255"),
        (("BYTE", -128), "-128"),
        (("USHORT", 65_535), "65535"),
        (("SHORT", -1), "-1"),
        (("UINT", 2**32 - 1), "4294967295"),
        (("INT", -(2**31)), "-2147483648"),
        (("ULONG", 2**64 - 1), "18446744073709551615"),
        (("LONG", -(2**62)), "-4611686018427387904"),
        (("FLOAT", 0.5), "0.5"),
        (("DOUBLE", -1e300), "-1e+300"),
        (("TIMESTAMP", MS), str(MS)),
        (NUMBER, str(NUMBER)),
        ([1, "a", [NUMBER]], f'[1, "a", ["{NUMBER}"]]'),
    ],
)
def test_each_type_of_application_property_becomes_text(value: Any, text: str | None) -> None:
    raw = read(received(section(APPLICATION_PROPERTIES, {"name": value}), data=[b"1"]))
    assert raw.headers.get("name") == text


@pytest.mark.parametrize("value", [{"a": 1}, {"a": {"b": NUMBER}}, [{"a": "b"}]])
def test_an_application_property_with_a_map_becomes_json(value: Any) -> None:
    """AMQP does not allow it, but its clients send it. Such a message must not end the stream."""
    raw = read(received(section(APPLICATION_PROPERTIES, {"name": value}), data=[b"1"]))
    assert json.loads(raw.headers["name"]) == json.loads(json.dumps(value, default=str))


def test_a_name_that_is_not_utf_8_is_read() -> None:
    assert read(received(section(APPLICATION_PROPERTIES, {("STRING", b"a\xff"): 1}), data=[b"1"])).headers == {"a\ufffd": "1"}


@pytest.mark.parametrize(("id", "text"), [("m", "m"), (7, "7"), (NUMBER, str(NUMBER)), (b"\xff", "\ufffd")])
def test_each_type_of_message_id_becomes_a_header(id: Any, text: str) -> None:
    raw = read(received(properties=Properties(message_id=id, correlation_id=id), data=[b"1"]))
    assert raw.headers == {"message-id": text, "correlation-id": text}


def test_each_property_of_a_sender_becomes_a_header() -> None:
    named: dict[str, Any] = {
        "message_id": "m",
        "correlation_id": "c",
        "content_type": b"text/plain",
        "content_encoding": b"gzip",
        "subject": "s",
        "to": "t",
        "reply_to": "r",
        "reply_to_group_id": "g",
        "user_id": b"hidden",
    }
    assert read(received(properties=Properties(**named), data=[b"1"])).headers == {
        "message-id": "m",
        "correlation-id": "c",
        "content-type": "text/plain",
        "content-encoding": "gzip",
        "subject": "s",
        "to": "t",
        "reply-to": "r",
        "reply-to-session-id": "g",
    }


def test_an_empty_property_is_no_header() -> None:
    assert read(received(properties=Properties(message_id="m", subject="", to=""), data=[b"1"])).headers == {"message-id": "m"}


@pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_"])
def test_attributes_of_a_cloudevent_are_read_from_application_properties(prefix: str) -> None:
    named = {"id": "1", "source": "/shop", "specversion": "1.0", "type": "paid"}
    sent = {f"{prefix}{name}": value for name, value in named.items()}
    properties = Properties(content_type=b"application/json")
    raw = read(received(stored(), properties=properties, application_properties=sent, data=[b'{"n":1}']), "cloudevents")
    assert raw.value == named | {"datacontenttype": "application/json", "data": {"n": 1}}
    assert raw.id == "%2Fshop/1"


def test_an_id_is_the_number_and_the_time_at_which_the_message_was_stored() -> None:
    ids = {id_of(received(stored(number), properties=Properties(message_id="m"), data=[b"1"])) for number in (1, 2**62)}
    assert ids == {f"1-{MS}", f"{2**62}-{MS}"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1) | st.floats() | st.text(max_size=5) | st.binary(max_size=5) | st.uuids(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), values, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_any_value_is_read_as_a_body(value: Any) -> None:
    body = body_of(received(section(VALUE, value)))
    if not isinstance(value, str | bytes) and value is not None:
        json.loads(body or b"")


def test_a_message_whose_decoding_fails_in_an_unexpected_way_is_malformed_and_others_are_not() -> None:
    def fail(value: bytes | None, headers: RawHeaders) -> Decoded:
        del headers
        if value == b"bad":
            raise RecursionError("too deep")
        return Decoded(value or b"null")

    events = [event_of(received(stored(), data=[body]), "orders", fail) for body in (b"bad", b"1")]
    assert [event.data for event in events] == [b"null", b"1"]
    assert "too deep" in (events[0].metadata.malformed or "")
    assert events[1].metadata.malformed is None
