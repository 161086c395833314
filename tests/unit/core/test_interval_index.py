"""Stretches of numbers are found by their nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.interval_index import LEVELS, node_of, nodes_over

numbers = st.integers(0, 40) | st.integers(0, (1 << LEVELS) - 1)


@given(numbers, numbers, numbers)
def test_what_holds_a_number_is_at_a_node_over_it(first: int, number: int, last: int) -> None:
    first, number, last = sorted((first, number, last))
    node = node_of(first, last)
    assert node is not None
    assert 0 < node < 1 << 63
    assert node in nodes_over(number)


@given(numbers, numbers)
def test_different_stretches_that_do_not_meet_in_the_middle_have_different_nodes(first: int, last: int) -> None:
    assert (node_of(first, first) == node_of(last, last)) == (first == last)


def test_there_are_few_nodes_and_none_for_what_is_no_stretch() -> None:
    assert len(set(nodes_over(12345))) == LEVELS + 1
    assert [node_of(3, 2), node_of(-1, 2), node_of(0, 1 << LEVELS)] == [None] * 3
    assert nodes_over(-1) == nodes_over(1 << LEVELS) == []
