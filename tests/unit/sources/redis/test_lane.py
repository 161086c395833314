"""Lanes: deliveries, answers, gaps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.redis.lane import MAX_BATCH_BYTES, MAX_COUNT, Answers, Arrival, Gap, Lane


def lane(committed: int | None = None) -> Lane:
    made = Lane("orders", "3fa9c1", committed, "0-0")
    made.pending_after = None
    return made


def answer(one: Lane, last: int, *failed: int, before_failed: int | None = None) -> None:
    one.commit(one.answer(Answers(last, failed, before_failed)), last)


def test_a_lane_is_named_by_its_key_and_its_birthmark() -> None:
    assert lane().name == "orders@3fa9c1"


def test_entries_that_arrive_again_are_skipped_or_acknowledged_again() -> None:
    one = lane()
    assert [one.arrive(position) for position in (3, 5, 8)] == [Arrival.DELIVER] * 3
    answer(one, 5, 5, before_failed=3)
    one.resume("0-8")
    assert [one.arrive(position) for position in (3, 5, 8, 9)] == [Arrival.ACKNOWLEDGE, Arrival.SKIP, Arrival.SKIP, Arrival.DELIVER]


def test_the_committed_position_stays_before_a_failed_entry() -> None:
    one = lane(committed=2)
    for position in range(3, 9):
        one.arrive(position)
    answer(one, 5)
    assert one.committed == 5
    answer(one, 7, 7, before_failed=6)
    answer(one, 8)
    one.looked(8, at_end=True)
    assert (one.committed, one.is_drained) == (6, True)


def test_a_batch_that_begins_with_a_failed_entry_commits_nothing() -> None:
    one = lane()
    one.arrive(3)
    answer(one, 3, 3)
    assert one.committed is None


def test_a_lane_that_is_read_and_answered_to_its_end_has_no_lag() -> None:
    one = lane()
    one.arrive(3)
    one.looked(9, at_end=True)
    assert (one.committed, one.end) == (None, 9)
    target = one.answer(Answers(3, (), None))
    not_stored = one.committed
    one.commit(target, 3)
    assert (not_stored, one.committed, one.end) == (None, 9, 9)
    one.arrive(10)
    one.looked(10, at_end=True)
    assert (one.committed, one.end) == (3, 10)


def test_a_gap_is_passed_before_anything_is_delivered() -> None:
    one = lane(committed=2)
    one.missed(Gap("0-2", 6))
    assert one.pass_gap()
    assert (one.committed, one.arrive(7)) == (6, Arrival.DELIVER)


def test_a_gap_after_delivered_entries_holds_the_lane() -> None:
    one = lane()
    one.arrive(3)
    one.missed(Gap("0-3", 6))
    assert not one.pass_gap()
    assert (one.is_held, one.is_drained, one.arrive(7)) == (True, False, Arrival.HOLD)
    answer(one, 3)
    assert (one.is_drained, one.committed) == (True, 3)


def test_pending_entries_before_a_gap_are_delivered() -> None:
    one = lane()
    one.missed(Gap("0-3", 6))
    assert [one.arrive(position) for position in (2, 3, 7, 8)] == [Arrival.DELIVER, Arrival.DELIVER, Arrival.HOLD, Arrival.HOLD]


def test_two_gaps_are_one() -> None:
    one = lane()
    one.missed(Gap("0-3", 6))
    one.missed(Gap("0-8", 9))
    assert (one.gap, str(one.gap)) == (Gap("0-3", 9), "after 0-3 up to 0-9")


@given(st.integers(1, 1_000), st.integers(1, 10_000_000), st.integers(1, 1_000))
def test_the_next_request_is_limited_by_the_size_of_entries(entries: int, size: int, lanes: int) -> None:
    one = lane()
    for _ in range(20):
        one.size_next(entries, entries * size, lanes)
    assert 1 <= one.count <= MAX_COUNT
    assert one.count == 1 or one.count * size * lanes <= MAX_BATCH_BYTES
