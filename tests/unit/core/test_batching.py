from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.batching import BatchPolicy, Debounce, Window, due_batches, policy_name

SECOND = 1_000_000


def test_micro_makes_one_run_of_all_events_and_each_makes_one_per_event() -> None:
    assert due_batches("micro", 3, 0, 0, 0) == [3]
    assert due_batches("each", 3, 0, 0, 0) == [1, 1, 1]
    assert due_batches("micro", 0, 0, 0, 0) == due_batches("each", 0, 0, 0, 0) == []


def test_a_debounce_waits_for_a_quiet_time_up_to_its_maximum_of_events() -> None:
    policy = Debounce(seconds=5, max_events=4)
    assert due_batches(policy, 3, 0, 0, 5 * SECOND - 1) == []
    assert due_batches(policy, 3, 0, 0, 5 * SECOND) == [3]
    assert due_batches(policy, 9, 0, SECOND, 5 * SECOND) == [4, 4]
    assert due_batches(policy, 9, 0, SECOND, 6 * SECOND) == [4, 4, 1]


def test_a_window_waits_until_it_is_full_or_too_old() -> None:
    assert due_batches(Window(3), 8, 0, 0, 100 * SECOND) == [3, 3]
    assert due_batches(Window(3, seconds=2), 2, 0, 9 * SECOND, 2 * SECOND - 1) == []
    assert due_batches(Window(3, seconds=2), 2, 0, 9 * SECOND, 2 * SECOND) == [2]


@given(
    st.sampled_from(["micro", "each", Debounce(1, 3), Window(2), Window(2, seconds=1)]),
    st.integers(0, 20),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_runs_are_never_empty_and_never_exceed_the_held_events(policy: BatchPolicy, held: int, first: int, quiet: int) -> None:
    runs = due_batches(policy, held, 0, first * SECOND, (first + quiet) * SECOND)
    assert all(runs)
    assert sum(runs) <= held


@pytest.mark.parametrize("make", [lambda: Debounce(0), lambda: Debounce(1, 0), lambda: Window(0), lambda: Window(1, seconds=0)])
def test_a_policy_that_would_never_run_is_rejected(make: object) -> None:
    with pytest.raises(ValueError, match="has s"):
        make()  # type: ignore[operator]


def test_policies_have_names() -> None:
    assert (policy_name("each"), policy_name(Window(2))) == ("each", "Window(size=2, seconds=None)")
