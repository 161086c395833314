from __future__ import annotations

import json

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import UpstreamError
from headrace.sources.dead_letters.message import MAX_TRIGGERS_BYTES, copied_headers, copied_value, first_names, text_headers
from headrace.sources.dead_letters.sender import make_sender
from headrace.sources.decoding import DECODERS
from headrace.sources.memory.upstream import Memory
from support.sources.dead_letters import copy_of


@pytest.mark.parametrize("decode", ["json", "text", "base64"])
@pytest.mark.parametrize("value", [b"{}", b"a text", "é\u2028".encode(), b"", b"null"])
def test_the_value_of_a_copy_is_the_value_that_was_decoded(decode: str, value: bytes) -> None:
    decoded = DECODERS[decode](value, ())
    assert copied_value(copy_of(1, decoded.data), decode) == (value, True)


def test_a_malformed_value_is_copied_as_it_is() -> None:
    metadata = MessageMetadata(malformed="Not Avro.")
    assert copied_value(copy_of(1, b"\x00\xff", metadata), "confluent") == (b"\x00\xff", True)


@pytest.mark.parametrize(
    ("decode", "data"),
    [("confluent", b'{"n":1}'), ("debezium", b'{"op":"c"}'), ("text", b"null"), ("base64", b'{"text":"x"}'), ("text", b"not JSON")],
)
def test_a_value_that_cannot_be_encoded_again_is_copied_as_triggers_got_it(decode: str, data: bytes) -> None:
    assert copied_value(copy_of(1, data), decode) == (data, False)


def test_the_headers_of_a_copy_are_those_of_its_message_and_its_own() -> None:
    metadata = MessageMetadata("k", (("a", b"1"), ("headrace-id", b"of an earlier copy"), ("none", None), ("a", b"2")), 5, id="m")
    headers = copied_headers(copy_of(1, b"{}", metadata), "avro", has_key=False)
    assert headers[:3] == [("a", b"1"), ("a", b"2"), ("headrace-id", b"letter-1")]
    own = dict(headers[2:])
    assert (own["headrace-message-id"], own["headrace-key"], own["headrace-decode"]) == (b"m", b"k", b"avro")
    assert "headrace-key" not in dict(copied_headers(copy_of(1, b"{}", metadata), None))


def test_a_copy_names_the_first_of_many_triggers() -> None:
    names = [f'"{number}"' for number in range(3_000)]
    array = dict(copied_headers(copy_of(1, triggers=names), None))["headrace-triggers"]
    first = json.loads(array)
    assert first == names[: len(first)]
    assert MAX_TRIGGERS_BYTES - len(json.dumps(names[0])) - len("9999,") < len(array) <= MAX_TRIGGERS_BYTES


@pytest.mark.parametrize("count", range(5))
def test_names_fit_exactly(count: int) -> None:
    names = ["a", "é", "ccc", '"'][:count]
    size = len(json.dumps(names, ensure_ascii=False, separators=(",", ":")).encode())
    assert first_names(names, size) == names
    assert first_names(names, size - 1) == names[: max(0, count - 1)]


def test_headers_that_are_not_valid_text_are_in_base64_and_named() -> None:
    headers = [("text", "é".encode()), ("bytes", b"\xff"), ("lines", b"a\nb"), ("empty", b"")]
    texts = text_headers(headers, lambda text: "\n" not in text)
    assert texts == {"text": "é", "bytes": "/w==", "lines": "YQpi", "empty": "", "headrace-base64": '["bytes","lines"]'}
    assert text_headers(headers[:1]) == {"text": "é"}


def test_an_upstream_without_a_sender_is_named() -> None:
    with pytest.raises(UpstreamError, match="memory:x cannot be copied"):
        make_sender(Memory("x"))
