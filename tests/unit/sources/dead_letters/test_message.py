from __future__ import annotations

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import UpstreamError
from headrace.sources.dead_letters.message import copied_value
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


def test_an_upstream_without_a_sender_is_named() -> None:
    with pytest.raises(UpstreamError, match="memory:x cannot be copied"):
        make_sender(Memory("x"))
