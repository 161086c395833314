from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from headrace.errors import MalformedEvent
from headrace.triggers.raw_event import Message, RawEvent


def test_the_value_is_parsed_once() -> None:
    raw = RawEvent(b'{"a": [1, null]}', "x", 3)
    assert raw.value == {"a": [1, None]}
    assert raw.value is raw.value
    assert (raw.lane, raw.position) == ("x", 3)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'"\xff"', b"{} {}", b"nan", b"[" * 100_000, b"[" * 201 + b"]" * 201])
def test_invalid_json_is_malformed_at_each_access(data: bytes) -> None:
    raw = RawEvent(data, "x", 0)
    for _ in range(2):
        with pytest.raises(MalformedEvent, match="Not valid JSON"):
            assert raw.value


def test_repr_is_short() -> None:
    assert len(repr(RawEvent(b"x" * 10_000, "lane", 5))) < 200


def test_headers_are_text_and_the_last_value_of_a_name_counts() -> None:
    message = Message(b"{}", "x", 1, headers=[("a", b"1"), ("b", b"\xff"), ("a", b"2"), ("c", None)])
    assert message.headers == {"a": "2", "b": "\N{REPLACEMENT CHARACTER}"}


def test_a_timestamp_is_a_time_in_utc() -> None:
    assert Message(b"{}", "x", 1, timestamp_ms=1_500).timestamp == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert Message(b"{}", "x", 1, timestamp_ms=-(2**63)).timestamp is None
    assert Message(b"{}", "x", 1).timestamp is None


def test_metadata_has_only_the_fields_of_the_broker() -> None:
    assert Message(b"{}", "x", 1).metadata.fields() == {}
    message = Message(b"{}", "x", 1, "k", 2, [("h", b"v")], 1_500)
    assert message.metadata.fields() == {"key": "k", "headers": {"h": "v"}, "timestamp": 1.5, "delivery": 2}


def test_a_message_for_another_process_has_its_metadata() -> None:
    message = Message(b'{"n":1}', "x", 1, "k", 2, [("h", b"v")], 1_500)
    assert message.value == {"n": 1}
    other = pickle.loads(pickle.dumps(message))
    assert (other.data, other.metadata, other.value) == (message.data, message.metadata, {"n": 1})


def test_a_malformed_message_has_its_reason_instead_of_a_value_also_in_another_process() -> None:
    message = Message(b'{"n": 1}', "a", 1, malformed="Not Avro.")
    for one in (message, message.unread_copy(), pickle.loads(pickle.dumps(message))):
        assert one.data == b'{"n": 1}'
        with pytest.raises(MalformedEvent, match=r"Not Avro\."):
            _ = one.value
