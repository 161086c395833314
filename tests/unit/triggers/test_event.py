from __future__ import annotations

from typing import Any

import pytest

from headrace.triggers.event import SKIP, Reject, Skip, TriggerEvent


def test_a_trigger_event_is_its_payload_and_what_it_says_of_itself() -> None:
    event = TriggerEvent({"a": 1}, follows="x")
    assert (event.payload, event.follows, event.id) == ({"a": 1}, "x", None)
    thawed: Any = event
    with pytest.raises(AttributeError):
        thawed.payload = 2
    assert Reject().reason is None


def test_skip_is_one_thing() -> None:
    assert SKIP is Skip.SKIP
    assert repr(SKIP) == "SKIP"
