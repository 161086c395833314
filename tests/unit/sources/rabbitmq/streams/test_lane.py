"""Deliveries, answers and commits of one stream."""

from __future__ import annotations

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.sources.rabbitmq.streams.lane import Delivered, Lane
from headrace.sources.rabbitmq.streams.start import NO_OFFSET, offset_argument


def answers(deliveries: list[Delivered], *failed: int) -> list[AdvanceItem]:
    return [AdvanceItem(one, AdvanceOutcome(0, 1) if one.position in failed else AdvanceOutcome(1, 0)) for one in deliveries]


def test_the_commit_never_passes_a_failed_message() -> None:
    lane = Lane("orders", "a1", 9)
    deliveries = [lane.deliver(offset) for offset in range(10, 20)]
    assert lane.answer(answers(deliveries[:6], 13)) == 12
    lane.confirm(12)
    assert lane.answer(answers(deliveries[6:])) is None
    assert (lane.committed, lane.is_drained) == (12, True)


def test_a_repeated_answer_commits_nothing_again() -> None:
    lane = Lane("orders", "a1", NO_OFFSET)
    deliveries = [lane.deliver(offset) for offset in range(5)]
    assert lane.answer(answers(deliveries[:4])) == 3
    assert lane.answer(answers(deliveries[:4])) == 3, "the commit may have failed"
    lane.confirm(3)
    assert lane.answer(answers(deliveries[:2])) is None
    lane.confirm(1)
    assert lane.committed_position == 3


def test_a_lane_without_a_commit_has_no_position() -> None:
    lane = Lane("orders", "a1", None)
    assert (lane.expected, lane.committed_position) == (None, None)
    lane.begin(0)
    assert (lane.expected, lane.committed, lane.committed_position) == (0, NO_OFFSET, None)
    assert Lane("orders", "a1", NO_OFFSET).expected == 0


def test_removed_messages_are_committed_only_before_the_first_delivery() -> None:
    lane = Lane("orders", "a1", 4)
    assert lane.removed_to(9)
    assert (lane.committed_position, lane.expected, lane.is_held) == (8, 9, False)
    deliveries = [lane.deliver(9), lane.deliver(10)]
    assert not lane.removed_to(20)
    assert (lane.committed_position, lane.is_held, lane.is_drained) == (8, True, False)
    lane.answer(answers(deliveries))
    assert lane.is_drained


def test_a_reading_begins_after_the_offset_or_at_the_start() -> None:
    assert offset_argument(7, "latest") == 8
    assert offset_argument(NO_OFFSET, "latest") == "first"
    assert (offset_argument(None, "earliest"), offset_argument(None, "latest"), offset_argument(None, 5)) == ("first", "next", 5)
