from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedEvent
from headrace.streams.subscribers.raw_text import dead_letter_text, from_text, preview, to_text
from headrace.triggers.raw_event import Message, RawEvent


@pytest.mark.parametrize("raw", [{"a": [1, 2.5, None, True, "ü\u0000"]}, "text", 7, None, []])
def test_json_values_are_restored_unchanged(raw: Any) -> None:
    assert from_text(to_text(raw), "x", 3) == raw


def test_a_raw_event_is_restored_with_its_lane_and_position() -> None:
    text = to_text(RawEvent(b'{"a":1}', "x", 3))
    assert text == '{"a":1}'
    back = from_text(text, "y", 4)
    assert (back.data, back.lane, back.position, back.value) == (b'{"a":1}', "y", 4, {"a": 1})


def test_invalid_characters_are_replaced() -> None:
    assert to_text(RawEvent(b"\xff\0", "x", 1)) == "\N{REPLACEMENT CHARACTER}" * 2


keys = st.none() | st.text(max_size=5)
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=4)), max_size=3).map(tuple)


@given(key=keys, headers=headers, timestamp_ms=st.none() | st.integers(-(2**63), 2**63 - 1), delivery=st.none() | st.integers(1, 9))
def test_a_message_is_restored_with_its_metadata(
    key: str | None, headers: tuple[tuple[str, bytes | None], ...], timestamp_ms: int | None, delivery: int | None
) -> None:
    message = Message(b'{"a":\n1}', "x", 3, key, delivery, headers, timestamp_ms)
    text = to_text(message)
    back = from_text(text, "x", 3)
    assert (back.data, back.lane, back.position) == (message.data, "x", 3)
    if message.has_metadata:
        assert back.metadata == message.metadata
        assert to_text(back) == text
    else:
        assert text == '{"a":\n1}'


@given(begin=st.sampled_from(["\x1d", "\x1e"]), rest=st.text(max_size=20) | st.just("{}\nx") | st.just('{"key":1}\nx'))
def test_a_malformed_raw_event_that_begins_with_a_mark_is_restored_unchanged(begin: str, rest: str) -> None:
    data = (begin + rest).replace("\0", "0").encode(errors="replace")
    back = from_text(to_text(RawEvent(data, "x", 1)), "x", 1)
    assert isinstance(back, RawEvent)
    assert back.data == data


def test_a_stored_text_whose_metadata_cannot_be_read_is_the_raw_event() -> None:
    assert from_text("\x1dnot JSON\nx", "x", 1).data == b"\x1dnot JSON\nx"


@pytest.mark.parametrize("raw", [object(), (1, 2), b"bytes", {1: 2}])
def test_a_value_that_is_not_json_is_rejected_and_its_preview_is_its_repr(raw: Any) -> None:
    with pytest.raises(MalformedEvent, match="cannot be kept"):
        to_text(raw)
    assert preview(raw) == repr(raw)


@pytest.mark.parametrize("message", [Message(b"{}", "x", 1, key="\ud800"), Message(b"{}", "x", 1, headers=[("name", object())])])  # type: ignore[list-item]
def test_metadata_that_no_text_can_hold_are_omitted_from_the_dead_letter(message: Message) -> None:
    with pytest.raises(MalformedEvent):
        to_text(message)
    assert dead_letter_text(message, 10) == "{}"


def test_a_malformed_message_keeps_its_reason() -> None:
    message = Message(b'{"n": 1}', "a", 1, malformed="Not Avro.")
    assert from_text(to_text(message), "a", 1).malformed == "Not Avro."
    assert from_text(dead_letter_text(message, 100), "a", 1).malformed == "Not Avro."


@given(st.binary())
def test_the_bytes_of_a_malformed_message_are_restored(data: bytes) -> None:
    message = Message(data, "a", 1, malformed="Not Avro.")
    text = dead_letter_text(message, 1_000)
    assert "\0" not in text
    assert from_text(text, "a", 1).data == data


@pytest.mark.parametrize("data", [b"\xff{", b'{"a":"\x00"}'])
def test_the_bytes_of_a_message_that_is_no_text_are_restored(data: bytes) -> None:
    restored = from_text(to_text(Message(data, "lane", 1, key="k")), "lane", 1)
    assert (restored.data, restored.key) == (data, "k")
