from __future__ import annotations

import pytest

from headrace.errors import MalformedEvent
from headrace.triggers.raw_event import RawEvent


def test_the_value_is_parsed_once() -> None:
    raw = RawEvent(b'{"a": [1, null]}', "x", 3)
    assert raw.value == {"a": [1, None]}
    assert raw.value is raw.value
    assert (raw.lane, raw.position) == ("x", 3)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'"\xff"', b"{} {}", b"nan", b"[" * 100_000, b"[" * 201 + b"]" * 201])
def test_what_is_not_json_is_malformed_each_time_it_is_read(data: bytes) -> None:
    raw = RawEvent(data, "x", 0)
    for _ in range(2):
        with pytest.raises(MalformedEvent, match="Not valid JSON"):
            assert raw.value


def test_repr_is_short() -> None:
    assert len(repr(RawEvent(b"x" * 10_000, "lane", 5))) < 200
