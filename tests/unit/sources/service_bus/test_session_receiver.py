"""Runs of deliveries that one request settles."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.service_bus.library import Delivery
from headrace.sources.service_bus.session_receiver import runs_of


@given(st.sets(st.integers(0, 60)))
def test_runs_have_each_delivery_once_in_order_and_no_gap_and_are_as_few_as_possible(numbers: set[int]) -> None:
    runs = runs_of([Delivery(number, b"") for number in sorted(numbers)])
    assert [delivery.number for run in runs for delivery in run] == sorted(numbers)
    assert all([one.number for one in run] == [*range(run[0].number, run[-1].number + 1)] for run in runs)
    assert all(before[-1].number + 1 < after[0].number for before, after in pairwise(runs))
