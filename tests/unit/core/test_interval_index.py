"""Ranges of numbers are found by their nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.interval_index import LEVELS, covering_nodes, interval_node

numbers = st.integers(0, 40) | st.integers(0, (1 << LEVELS) - 1)


@given(numbers, numbers, numbers)
def test_a_range_has_a_node_that_covers_each_of_its_numbers(first: int, number: int, last: int) -> None:
    first, number, last = sorted((first, number, last))
    node = interval_node(first, last)
    assert node is not None
    assert 0 < node < 1 << 63
    assert node in covering_nodes(number)


@given(numbers, numbers)
def test_ranges_of_different_single_numbers_have_different_nodes(first: int, last: int) -> None:
    assert (interval_node(first, first) == interval_node(last, last)) == (first == last)


def test_a_number_has_few_nodes_and_an_invalid_range_has_none() -> None:
    assert len(set(covering_nodes(12345))) == LEVELS + 1
    assert [interval_node(3, 2), interval_node(-1, 2), interval_node(0, 1 << LEVELS)] == [None] * 3
    assert covering_nodes(-1) == covering_nodes(1 << LEVELS) == []
