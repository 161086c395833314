"""Requests as messages: no request raises anything but a rejection, and the text of the sender is kept."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.matching.paths import JsonPath
from headrace.core.signatures.schemes import SCHEMES
from headrace.core.values.message_text import MessageMetadata, decode_metadata
from headrace.sources.http.decoding import MAX_REQUEST_MESSAGES, RequestDecoding, challenge_of, decode_request
from headrace.sources.http.rejection import RequestRejected
from headrace.sources.outgoing import OutgoingMessage

PLAIN = RequestDecoding(SCHEMES["none"])
EVENT = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t"}
FORM = "application/x-www-form-urlencoded"
TYPES = (
    "application/json",
    "application/x-ndjson",
    "application/cloudevents+json",
    "application/cloudevents-batch+json",
    FORM,
    "text/plain",
    "",
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def decode(body: bytes, decoding: RequestDecoding = PLAIN, **headers: str) -> list[OutgoingMessage]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return decode_request(decoding, names, body, 1_000).messages


def id_of(message: OutgoingMessage) -> str | None:
    assert message.metadata is not None
    return decode_metadata(message.metadata).id


def decoded_or_rejected(body: bytes, headers: dict[str, str]) -> list[OutgoingMessage] | None:
    """Return the messages, or None for a request that is rejected with a status of the sender's."""
    try:
        return decode_request(PLAIN, headers, body, 1_000).messages
    except RequestRejected as error:
        if error.status not in (400, 413, 415):
            raise
        return None


@given(
    st.sampled_from(TYPES), st.binary(max_size=300), st.dictionaries(st.from_regex(r"ce-[a-z]{1,8}", fullmatch=True), st.text(max_size=20))
)
def test_no_bytes_raise_anything_but_a_rejection(kind: str, body: bytes, headers: dict[str, str]) -> None:
    for more in ({}, {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/a", "ce-type": "t"}):
        for message in decoded_or_rejected(body, {"content-type": kind} | headers | more) or []:
            msgspec.json.decode(message.data)


@given(json_values, st.sampled_from(TYPES[:4]))
def test_any_json_is_a_message_or_rejected(value: Any, kind: str) -> None:
    body = json.dumps(value).encode(errors="surrogatepass")
    messages = decoded_or_rejected(body, {"content-type": kind})
    if kind == "application/json":
        assert messages is not None
        assert [one.data for one in messages] == [body]


@given(st.lists(json_values, max_size=5))
def test_the_data_of_a_batch_are_those_of_the_sender(values: list[Any]) -> None:
    body = json.dumps([EVENT | {"id": f"{number}", "data": value} for number, value in enumerate(values, 1)]).encode()
    messages = decode(body, content_type="application/cloudevents-batch+json")
    assert [json.loads(one.data)["data"] for one in messages] == values
    assert [id_of(one) for one in messages] == [f"%2Fa/{number}" for number in range(1, len(values) + 1)]


@pytest.mark.parametrize("data", [b"2.50", b"123456789012345678901234567890", b'{"a":1,"a":2}', b"[ 1 ]"])
def test_numbers_and_spaces_of_the_data_are_unchanged(data: bytes) -> None:
    event = b'{"specversion":"1.0","id":"1","source":"/a","type":"t","data":' + data + b"}"
    assert decode(event, content_type="application/cloudevents+json")[0].data == event
    assert decode(b"[" + event + b"]", content_type="application/cloudevents-batch+json")[0].data == event
    binary = decode(data, content_type="application/json", ce_specversion="1.0", ce_id="1", ce_source="/a", ce_type="t")
    assert b'"data":' + data in binary[0].data


@pytest.mark.parametrize(
    ("body", "key", "headers", "expected"),
    [
        (b'{"c":"Ada"}', "$.c", {}, "Ada"),
        (b'{"c":7}', "$.c", {}, "7"),
        (b'{"c":true}', "$.c", {}, None),
        (b'{"c":{}}', "$.c", {}, None),
        (b"[]", "$.c", {}, None),
        (b"{}", "@.headers.traceparent", {"traceparent": "00"}, "00"),
        (b"{}", "@.headers.authorization", {"authorization": "Bearer x"}, None),
    ],
)
def test_the_key_of_a_message(body: bytes, key: str, headers: dict[str, str], expected: str | None) -> None:
    decoding = RequestDecoding(SCHEMES["none"], JsonPath.parse(key))
    assert decode(body, decoding, **headers)[0].key == expected


def test_a_huge_number_is_no_key() -> None:
    decoding = RequestDecoding(SCHEMES["none"], JsonPath.parse("$.c"))
    assert decode(b'{"c":' + b"9" * 4_000 + b"}", decoding)[0].key in (None, "inf")


def test_a_long_or_odd_id_is_bounded_and_distinct() -> None:
    ids = {id_of(decode(b"{}", webhook_id=f"{'x' * 10_000}{number}")[0]) for number in range(3)}
    assert len(ids) == 3
    assert all(id is not None and len(id) <= 1_000 for id in ids)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"type": "url_verification", "challenge": "c"}, "c"),
        ({"type": "url_verification", "challenge": 1}, None),
        ({"type": "event_callback", "challenge": "c"}, None),
        ([], None),
    ],
)
def test_a_challenge(value: object, expected: str | None) -> None:
    assert challenge_of(value) == expected


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"command=%2Fdeploy&text=web+42&user_id=U1", {"command": "/deploy", "text": "web 42", "user_id": "U1"}),
        (b"tag=a&tag=b&tag=&one=%C3%A9", {"tag": ["a", "b", ""], "one": "\u00e9"}),
        (b"tag=a&tag=a", {"tag": ["a", "a"]}),
        (b"payload=%7B%22action%22%3A%22opened%22%7D", {"action": "opened"}),
        (b"payload=%7B%7D&other=1", {"payload": "{}", "other": "1"}),
    ],
)
def test_a_form_is_an_object_of_its_fields_or_the_json_of_its_payload(body: bytes, value: Any) -> None:
    (message,) = decode(body, content_type=f"{FORM}; charset=utf-8")
    assert json.loads(message.data) == value


def test_a_form_has_the_delivery_id_of_its_sender() -> None:
    (message,) = decode(b"payload=%7B%7D", RequestDecoding(SCHEMES["github"]), content_type=FORM, x_github_delivery="d-1")
    assert id_of(message) == "d-1"


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.lists(st.text(max_size=5), min_size=1, max_size=3), min_size=1, max_size=5))
def test_any_fields_of_a_form_are_kept(fields: dict[str, list[str]]) -> None:
    if [*fields] == ["payload"]:
        return
    try:
        body = urlencode(fields, doseq=True).encode()
    except UnicodeEncodeError:
        return
    (message,) = decode(body, content_type=FORM)
    assert json.loads(message.data) == {name: texts[0] if len(texts) == 1 else texts for name, texts in fields.items()}


@pytest.mark.parametrize("body", [b"a", b"&", b"a=%ff", "\u00e9=\udcff".encode(errors="surrogatepass"), b"&".join([b"a=1"] * 1_001)])
def test_a_body_that_is_no_form_is_rejected(body: bytes) -> None:
    with pytest.raises(RequestRejected, match="not a form") as rejection:
        decode(body, content_type=FORM)
    assert rejection.value.status == 400


NDJSON = "application/x-ndjson"
BATCH = "application/cloudevents-batch+json"


def batch(count: int) -> bytes:
    return json.dumps([EVENT | {"id": str(number)} for number in range(count)]).encode()


def rejection(body: bytes, **headers: str) -> RequestRejected:
    with pytest.raises(RequestRejected) as caught:
        decode(body, PLAIN, **headers)
    return caught.value


@pytest.mark.parametrize(
    ("body", "kind"), [(b"1\n" * (MAX_REQUEST_MESSAGES + 1), NDJSON), (batch(MAX_REQUEST_MESSAGES + 1), BATCH)], ids=["lines", "batch"]
)
def test_a_request_of_too_many_messages_is_rejected(body: bytes, kind: str) -> None:
    error = rejection(body, content_type=kind)
    assert (error.status, error.slug) == (413, "too-large")
    assert f"{MAX_REQUEST_MESSAGES:,}" in str(error)


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"\n" * 20_000 + b"1\n" * MAX_REQUEST_MESSAGES, NDJSON), (batch(MAX_REQUEST_MESSAGES), BATCH)],
    ids=["lines", "batch"],
)
def test_a_request_of_the_most_messages_is_accepted(body: bytes, kind: str) -> None:
    assert len(decode(body, content_type=kind)) == MAX_REQUEST_MESSAGES


@pytest.mark.parametrize(("body", "kind"), [(b"1\n" * 2_000, NDJSON), (batch(2_000), BATCH)], ids=["lines", "batch"])
def test_headers_that_many_messages_repeat_count_for_the_size_of_the_request(body: bytes, kind: str) -> None:
    assert len(decode(body, content_type=kind, user_agent="a" * 1_000)) == 2_000
    error = rejection(body, content_type=kind, user_agent="a" * 20_000)
    assert (error.status, error.slug) == (413, "too-large")


def test_a_key_from_the_headers_counts_for_the_size_of_the_request() -> None:
    decoding = RequestDecoding(SCHEMES["none"], JsonPath.parse("@.headers.x-tenant"))
    with pytest.raises(RequestRejected) as caught:
        decode(b"1\n" * 2_000, RequestDecoding(decoding.scheme, decoding.key, ("x-tenant",)), content_type=NDJSON, x_tenant="a" * 10_000)
    assert caught.value.status == 413


def test_messages_without_an_id_share_their_metadata() -> None:
    messages = decode(b"1\n" * 100, content_type=NDJSON, traceparent="00-1")
    assert len({id(one.metadata) for one in messages}) == 1


@pytest.mark.parametrize("key", ["k", 'a"\\\u00e9', ""])
def test_the_metadata_of_a_line_have_headers_time_and_id(key: str) -> None:
    headers = {"content-type": NDJSON, "idempotency-key": key}
    first, second = decode_request(PLAIN, headers, b"1\n2", 1_000).messages
    for number, message in enumerate((first, second), 1):
        assert message.metadata is not None
        found = decode_metadata(message.metadata)
        expected = found.id if found.id is None else f"{found.id.rpartition('/')[0]}/{number}"
        pairs = tuple((name, value.encode()) for name, value in headers.items())
        assert found == MessageMetadata(headers=pairs, timestamp_ms=1_000, id=expected)
        assert (found.id is None) is (not key)


@pytest.mark.parametrize("kind", ["application/json", NDJSON, BATCH, FORM])
@pytest.mark.parametrize("coding", ["gzip", "identity, br", "x"])
def test_a_compressed_body_is_rejected(kind: str, coding: str) -> None:
    error = rejection(b"1", content_type=kind, content_encoding=coding)
    assert (error.status, error.slug) == (415, "unsupported-media-type")
    assert "Content-Encoding" in str(error)


def test_a_compressed_event_in_binary_mode_is_rejected() -> None:
    event = {f"ce_{name}": value for name, value in EVENT.items()}
    assert rejection(b"\x1f\x8b", content_type="application/octet-stream", content_encoding="gzip", **event).status == 415


@pytest.mark.parametrize("coding", ["", "identity", " Identity "])
def test_the_coding_identity_is_none(coding: str) -> None:
    assert [one.data for one in decode(b"1", content_encoding=coding)] == [b"1"]
