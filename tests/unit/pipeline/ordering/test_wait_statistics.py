"""Hold times fall into the same buckets on the driver and in SQL."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.ordering.wait_statistics import histogram
from headrace.store.ordering.wait_histogram import add_waits, as_buckets
from headrace.wire.custody.events import HOLD_BUCKETS

edges = [round(bound * 1_000_000) + offset for bound in HOLD_BUCKETS for offset in (-1, 0, 1)]
waits = st.lists(st.sampled_from([0, *edges]) | st.integers(0, 10**10), max_size=30)


@given(waits, waits)
def test_kernel_and_store_count_waits_alike(first: list[int], second: list[int]) -> None:
    on_driver = histogram(histogram([], np.array(first, dtype=np.int64)), np.array(second, dtype=np.int64))
    in_sql = as_buckets(add_waits(add_waits("[]", first), second))
    assert on_driver == (in_sql or [0] * (len(HOLD_BUCKETS) + 1))
    assert sum(on_driver) == sum(wait > 0 for wait in first + second)


def test_a_wait_counts_in_the_lowest_bucket_that_contains_it() -> None:
    assert as_buckets(add_waits("[]", [0, 100_000, 100_001, 900_000_000, 900_000_001])) == [1, 1, 0, 0, 0, 0, 1, 1]
