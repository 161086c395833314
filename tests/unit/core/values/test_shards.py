from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.values.shards import WHOLE, Shard, overlap, shard_name, split_shard_name, whole_name


@given(st.text(min_size=1, max_size=20), st.integers(2, 256).flatmap(lambda total: st.tuples(st.integers(0, total - 1), st.just(total))))
def test_a_name_of_a_shard_is_split_again(base: str, shard: tuple[int, int]) -> None:
    name = shard_name(base, Shard(*shard))
    assert split_shard_name(name) == (base, Shard(*shard))
    assert whole_name(name) == base


@pytest.mark.parametrize(
    "name", ["orders", "orders#", "orders#1", "orders#4-of-4", "orders#0-of-1", "orders#01-of-4", "#0-of-2", "orders#0-of-2x"]
)
def test_another_name_is_that_of_the_whole(name: str) -> None:
    assert split_shard_name(name) == (name, WHOLE)
    assert shard_name(name, WHOLE) == whole_name(name) == name


@pytest.mark.parametrize(
    ("first", "second", "overlaps"),
    [
        ("orders", "orders#0-of-2", True),
        ("orders#0-of-2", "orders#3-of-4", True),
        ("orders#0-of-2", "orders#1-of-2", False),
        ("orders", "orders", False),
        ("orders#0-of-2", "refunds#0-of-4", False),
    ],
)
def test_streams_overlap_if_their_numbers_of_shards_differ(first: str, second: str, overlaps: bool) -> None:
    assert overlap(first, second) == overlap(second, first) == overlaps
