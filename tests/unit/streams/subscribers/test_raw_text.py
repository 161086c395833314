from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import MalformedEvent
from headrace.streams.subscribers.raw_text import from_text, preview, to_text
from headrace.triggers.raw_event import RawEvent


@pytest.mark.parametrize("raw", [{"a": [1, 2.5, None, True, "ü\u0000"]}, "text", 7, None, []])
def test_json_values_come_back_as_they_were(raw: Any) -> None:
    assert from_text(to_text(raw), "x", 3) == raw


def test_a_raw_event_comes_back_with_its_place() -> None:
    text = to_text(RawEvent(b'{"a":1}', "x", 3))
    assert text == '{"a":1}'
    back = from_text(text, "y", 4)
    assert (back.data, back.lane, back.position, back.value) == (b'{"a":1}', "y", 4, {"a": 1})


def test_what_no_text_has_is_replaced() -> None:
    assert to_text(RawEvent(b"\xff\0", "x", 1)) == "\N{REPLACEMENT CHARACTER}" * 2


@pytest.mark.parametrize("raw", [object(), (1, 2), b"bytes", {1: 2}])
def test_what_is_not_json_is_refused_and_shown_as_it_prints(raw: Any) -> None:
    with pytest.raises(MalformedEvent, match="cannot be kept"):
        to_text(raw)
    assert preview(raw) == repr(raw)
