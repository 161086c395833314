from __future__ import annotations

from typing import Any

import pytest

from headrace.triggers.event import SKIP, Reject, Skip, TriggerEvent


def test_a_trigger_event_is_immutable_and_has_a_payload_and_metadata() -> None:
    event = TriggerEvent({"a": 1}, follows="x")
    assert (event.payload, event.follows, event.id) == ({"a": 1}, "x", None)
    thawed: Any = event
    with pytest.raises(AttributeError):
        thawed.payload = 2
    assert Reject().reason is None


def test_skip_is_a_singleton() -> None:
    assert SKIP is Skip.SKIP
    assert repr(SKIP) == "SKIP"
