"""Which group, birthmark and place a stream key is read with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.redis.client import StreamFacts, StreamKey
from headrace.sources.redis.groups import GroupPlan, consumer_name, is_same_stream, plan_group

KEY = StreamKey("orders", "shop")
STATE = {"mark": "aa", "begin": "0-0", "read": "9-0", "delivered": "9-0", "counted": "9", "committed": "5-0"}


def stream(first: int, last: int, added: int, length: int) -> dict[str, Any]:
    return {"entries-added": added, "length": length, "recorded-first-entry-id": f"{first}-0", "last-generated-id": f"{last}-0"}


def group(last: str) -> dict[str, Any]:
    return {"last-delivered-id": last}


def plan(
    facts_stream: Mapping[str, Any] | None,
    facts_group: Mapping[str, Any] | None,
    state: Mapping[str, str],
    consumers: Mapping[str, int] | None = None,
    *,
    start: str = "$",
    was_read: bool = False,
) -> GroupPlan:
    return plan_group(KEY, StreamFacts(facts_stream, facts_group, consumers or {}, state), start, "bb", was_read=was_read)


def test_the_first_reading_begins_at_the_start() -> None:
    assert plan(None, None, {}) == GroupPlan("bb", "create", "$")
    assert plan(stream(1, 9, 9, 9), None, {"holder": "token"}) == GroupPlan("bb", "create", "$")


def test_a_group_of_another_program_keeps_its_place() -> None:
    assert plan(stream(1, 9, 9, 9), group("4-0"), {}, {"other": 0}) == GroupPlan("bb", "keep", "4-0")


def test_a_group_that_is_as_the_state_says_is_read_on() -> None:
    assert plan(stream(1, 9, 9, 9), group("9-0"), STATE, {consumer_name("aa"): 3}) == GroupPlan("aa")


def test_a_lost_state_takes_the_birthmark_of_the_group() -> None:
    assert plan(stream(1, 9, 9, 9), group("9-0"), {}, {consumer_name("cc"): 3}) == GroupPlan("cc", "keep", "9-0")


def test_a_group_that_was_moved_is_reported() -> None:
    moved = plan(stream(1, 9, 9, 9), group("2-0"), STATE, {consumer_name("aa"): 3})
    assert moved[:3] == ("aa", "keep", "2-0")
    assert "moved group 'shop' from 9-0 to 2-0" in (moved.problem or "")


@pytest.mark.parametrize(("facts_group", "how"), [(None, "create"), (group("9-0"), "set")])
def test_a_deleted_group_is_made_again_at_the_committed_entry(facts_group: Mapping[str, Any] | None, how: str) -> None:
    again = plan(stream(1, 12, 12, 12), facts_group, STATE)
    assert again[:3] == ("aa", how, "5-0")
    assert "entries after 5-0 are read again" in (again.problem or "")


@pytest.mark.parametrize("facts_stream", [None, stream(20, 22, 3, 3), stream(1, 3, 3, 3), stream(20, 40, 21, 21)])
@pytest.mark.parametrize(("facts_group", "how"), [(None, "create"), (group("20-0"), "set")])
def test_a_stream_that_was_created_again_is_another_lane_from_its_first_entry(
    facts_stream: Mapping[str, Any] | None, facts_group: Mapping[str, Any] | None, how: str
) -> None:
    again = plan(facts_stream, facts_group, STATE)
    assert again[:3] == ("bb", how, "0-0")
    assert "was deleted, or created again" in (again.problem or "")


def test_progress_that_is_missing_for_a_recorded_stream_is_reported_and_nothing_is_left_out() -> None:
    again = plan(stream(1, 9, 9, 9), None, {}, was_read=True)
    assert again[:3] == ("bb", "create", "0-0")
    assert "its progress are missing" in (again.problem or "")


def test_consumers_of_other_programs_that_hold_entries_are_refused() -> None:
    with pytest.raises(UpstreamError, match=r"has other consumers with unacknowledged entries: a, b\."):
        plan(stream(1, 9, 9, 9), group("9-0"), STATE, {consumer_name("aa"): 3, "b": 1, "a": 2, "c": 0})


@pytest.mark.parametrize(
    ("described", "same"),
    [
        (stream(1, 9, 9, 9), True),
        (stream(7, 15, 15, 9), True),  # trimmed before the last read entry
        (stream(13, 15, 15, 3), True),  # trimmed past it
        (stream(0, 9, 9, 0), True),  # emptied
        (stream(13, 15, 3, 3), False),
        (stream(1, 8, 20, 8), False),
        (stream(13, 40, 28, 28), False),
    ],
)
def test_a_stream_is_recognised_by_its_counts(described: Mapping[str, Any], same: bool) -> None:
    assert is_same_stream(described, STATE) is same
