"""Waits between restarts grow, are bounded, and end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.restart_policy import LONG_LIFE, MAX_WAIT_SECONDS, RestartDecision, next_restart


def test_waits_double_up_to_a_bound_until_restarts_end() -> None:
    waits = [next_restart(before, 0, 10, 0).retry_in for before in range(11)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, None]


def test_a_long_uptime_resets_the_number_of_restarts() -> None:
    assert next_restart(10, LONG_LIFE, 10, 0) == RestartDecision(1, 1.0)
    assert next_restart(10, LONG_LIFE - 1, 10, 0) == RestartDecision(11, None)


def test_a_negative_uptime_counts_as_a_short_uptime() -> None:
    assert next_restart(3, -3_600, 10, 0) == RestartDecision(4, 8.0)


@given(st.integers(0, 10_000), st.floats(-1e9, 1e9), st.integers(0, 100), st.floats(0, 1, exclude_max=True), st.booleans())
def test_waits_are_bounded_and_a_failed_upstream_parks_no_trigger(
    before: int, lived: float, limit: int, spread: float, upstream: bool
) -> None:
    verdict = next_restart(before, lived, limit, spread, upstream=upstream)
    assert verdict.retry_in is None or 0.5 < verdict.retry_in <= MAX_WAIT_SECONDS
    assert verdict.retry_in is not None or (not upstream and verdict.restarts > limit)
