"""Ids of entries and their positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UpstreamError
from headrace.sources.redis.entry_ids import MAX_SEQUENCE, MAX_TIME_MS, id_of, limited_position, parse_id, position_of, time_of

IDS = st.tuples(st.integers(0, MAX_TIME_MS), st.integers(0, MAX_SEQUENCE))


def text(id: tuple[int, int]) -> str:
    return f"{id[0]}-{id[1]}"


@given(IDS, IDS)
def test_positions_are_ordered_as_ids_and_fit_64_bits(first: tuple[int, int], second: tuple[int, int]) -> None:
    positions = position_of(text(first)), position_of(text(second))
    assert (positions[0] < positions[1]) == (first < second)
    assert max(positions).bit_length() < 64
    assert (id_of(positions[0]), time_of(positions[0])) == (text(first), first[0])


@pytest.mark.parametrize("id", [f"{MAX_TIME_MS + 1}-0", f"0-{MAX_SEQUENCE + 1}", f"{2**64 - 1}-{2**64 - 1}"])
def test_an_id_that_does_not_fit_is_refused(id: str) -> None:
    with pytest.raises(UpstreamError, match=f"Entry {id} cannot be read: its id is too large"):
        position_of(id)


@given(IDS)
def test_a_limited_position_is_that_of_an_id_that_fits(id: tuple[int, int]) -> None:
    assert limited_position(text(id)) == position_of(text(id))


def test_a_limited_position_of_another_id_is_the_highest_below() -> None:
    assert limited_position(f"{2**64 - 1}-{2**64 - 1}") == 2**63 - 1
    assert limited_position(f"7-{2**64 - 1}") == position_of(f"7-{MAX_SEQUENCE}")


def test_an_id_may_lack_its_sequence_number() -> None:
    assert parse_id("17") == (17, 0)


@pytest.mark.parametrize("text", ["", "-", "1-", "-1", "1-2-3", "a-1", "1 -2", "$", "\u0661-1"])
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError, match="not an id"):
        parse_id(text)
