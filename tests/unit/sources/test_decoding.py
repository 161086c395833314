"""Values of messages become JSON, or are refused with a reason."""

from __future__ import annotations

import json
from base64 import b64decode
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedEvent
from headrace.sources.decoding import (
    DECODERS,
    Format,
    decode_base64,
    decode_cloudevent,
    decode_debezium,
    decode_or_reason,
    decode_text,
    decoded_message,
)

STRUCTURED = (("Content-Type", b"application/cloudevents+json; charset=utf-8"),)
EVENT = {"specversion": "1.0", "id": "7", "source": "/orders", "type": "paid"}


def binary(*more: tuple[str, bytes | None], **changes: str | None) -> list[tuple[str, bytes | None]]:
    attributes = {**EVENT, **changes}
    return [(f"ce_{name}", value.encode()) for name, value in attributes.items() if value is not None] + list(more)


def test_a_structured_cloudevent_is_unchanged() -> None:
    value = json.dumps({**EVENT, "data": {"n": 1}}, indent=1).encode()
    for headers in (STRUCTURED, ()):
        assert decode_cloudevent(value, headers) == (value, "%2Forders/7")


@pytest.mark.parametrize(
    ("content_type", "value", "expected"),
    [
        (None, b'{"n": 1}', {"data": {"n": 1}}),
        (b"application/json", b"[1.50]", {"data": [1.5]}),
        (b"application/vnd.shop+json; v=1", b"null", {"data": None}),
        (b"text/plain", "grün".encode(), {"data": "grün"}),
        (b"text/plain; charset=latin-1", b"gr\xfcn", {"data_base64": "Z3L8bg=="}),
        (b"image/png", b"\x89PNG", {"data_base64": "iVBORw=="}),
        (b"image/png", None, {}),
    ],
)
def test_a_binary_cloudevent_becomes_a_structured_one(content_type: bytes | None, value: bytes | None, expected: dict[str, Any]) -> None:
    headers = binary(("ce_partitionkey", b"a"), ("other", b"x"))
    if content_type is not None:
        headers.append(("content-type", content_type))
        expected = {**expected, "datacontenttype": content_type.decode()}
    data, id = decode_cloudevent(value, headers)
    assert json.loads(data) == {**EVENT, "partitionkey": "a", **expected}
    assert id == "%2Forders/7"


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        (b"{}", binary(id=None), "'id' is absent"),
        (b"{}", binary(type=""), "'type' is absent"),
        (b"{}", binary(specversion="0.3"), "version"),
        (b"{", binary(), "not JSON"),
        (b"\xff", binary(), "not JSON"),
        (b"{}", binary(("ce_subject", b"\xff")), "'ce_subject'"),
        (b"{}", STRUCTURED, "'id' is absent"),
        (json.dumps({**EVENT, "id": 7}).encode(), STRUCTURED, "'id' is not a text"),
        (b"[]", STRUCTURED, "Not a JSON object"),
        (None, [*STRUCTURED, *binary()], "no value"),
        (b"not json", (), "Not a JSON object"),
    ],
)
def test_an_invalid_cloudevent_is_refused_with_the_reason(value: bytes | None, headers: Any, reason: str) -> None:
    with pytest.raises(MalformedEvent, match=reason):
        decode_cloudevent(value, headers)


def test_ids_of_cloudevents_differ_if_source_or_id_differs() -> None:
    pairs = [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("a%2fb", "c")]
    assert len({decode_cloudevent(None, binary(source=source, id=id)).id for source, id in pairs}) == 4


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_change_event_loses_its_schema(wrapped: bool) -> None:
    payload = b'{"before":null,"after":{"id":1.50},"op":"c"}'
    value = b'{"schema":{"type":"struct"},"payload":' + payload + b"}" if wrapped else payload
    assert decode_debezium(value, ()).data == payload


def test_a_deleted_key_is_null() -> None:
    for decoder in DECODERS.values():
        assert decoder(None, ()).data == b"null"
    assert decode_debezium(b'{"schema":null,"payload":null}', ()).data == b"null"


@pytest.mark.parametrize("value", [b"{}", b"[]", b"", b"{", b'{"schema":1,"payload":2}', b'{"schema":1,"payload":{}}'])
def test_an_invalid_change_event_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedEvent):
        decode_debezium(value, ())


@given(st.binary())
def test_text_and_bytes_are_exact(value: bytes) -> None:
    assert b64decode(json.loads(decode_base64(value, ()).data)["base64"]) == value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        with pytest.raises(MalformedEvent):
            decode_text(value, ())
    else:
        assert json.loads(decode_text(value, ()).data) == {"text": text}


JSON = st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)).map(
    lambda value: json.dumps(value).encode()
)
HEADERS = st.lists(st.tuples(st.sampled_from([*(name for name, _ in binary()), "content-type", "CE_ID", ""]), st.none() | st.binary()))


@given(st.sampled_from(sorted(set(DECODERS) - {"json"})), st.none() | st.binary() | JSON, HEADERS)
def test_any_value_becomes_json_or_is_refused(decoding: Format, value: bytes | None, headers: Any) -> None:
    with suppress(MalformedEvent):
        json.loads(DECODERS[decoding](value, headers).data)


def test_a_decoded_message_has_the_id_of_its_format_or_that_of_the_broker() -> None:
    event = b'{"specversion": "1.0", "id": "7", "source": "shop", "type": "order"}'
    assert decoded_message(decode_cloudevent, event, "a", 1, id="m-1").id == "shop/7"
    assert decoded_message(decode_text, b"x", "a", 1, id="m-1").id == "m-1"


def test_a_value_in_another_format_makes_a_malformed_message() -> None:
    message = decoded_message(decode_debezium, b"{}", "a", 1, key="k", headers=[("h", b"1")], id="m-1")
    assert (message.data, message.key, message.headers, message.id) == (b"{}", "k", {"h": "1"}, "m-1")
    assert message.malformed == "Not a change event of Debezium: it has no field 'op'."


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        (b'{"op":"c"}', ((b'{"op":"c"}', None), None)),
        (b"{}", ((b"{}", None), "Not a change event of Debezium: it has no field 'op'.")),
        (b"", ((b"", None), "Not a JSON object: Input data was truncated.")),
        (None, ((b"null", None), None)),
    ],
)
def test_a_value_is_decoded_or_stays_as_it_is_with_the_reason(value: bytes | None, decoded: Any) -> None:
    assert decode_or_reason(decode_debezium, value, ()) == decoded
