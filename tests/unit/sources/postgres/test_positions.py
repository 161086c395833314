from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.postgres.positions import (
    ERA_BITS,
    INDEX_BITS,
    birthmark_of,
    lane_suffix,
    lane_text,
    lsn_text,
    parse_lsn,
    position_of,
)

COMMIT_RECORD_BYTES = 40
lsns = st.integers(0, 2**64 - 1)
indexes = st.integers(0, 2**INDEX_BITS - 1)


@given(lsns)
def test_an_lsn_is_parsed_from_its_text(lsn: int) -> None:
    assert parse_lsn(lsn_text(lsn)) == lsn
    assert lsn_text(0x16B374D848) == "16/B374D848"


@given(lsns, st.integers(0, 2**40))
def test_a_position_fits_64_bits_with_sign(lsn: int, index: int) -> None:
    assert 0 <= position_of(lsn, index) < 2**63


@given(st.integers(0, 2**ERA_BITS - 1), st.integers(COMMIT_RECORD_BYTES, 2**20), indexes, indexes)
def test_positions_of_the_next_transaction_are_higher(lsn: int, distance: int, index: int, next_index: int) -> None:
    following = lsn + distance
    if following >> ERA_BITS == lsn >> ERA_BITS:
        assert position_of(lsn, index) < position_of(following, next_index)
    else:
        assert lane_suffix("m", lsn, index) != lane_suffix("m", following, next_index)


@given(lsns, st.integers(0, 2**30))
def test_positions_rise_within_a_transaction_and_its_overflow_has_another_lane(lsn: int, index: int) -> None:
    same_lane = lane_suffix("m", lsn, index) == lane_suffix("m", lsn, index + 1)
    assert same_lane == ((index + 1) % 2**INDEX_BITS != 0)
    assert (position_of(lsn, index) < position_of(lsn, index + 1)) == same_lane


def test_the_suffix_names_era_and_part_only_where_there_is_one() -> None:
    assert lane_suffix("3f2a9c", 1000, 5) == "@3f2a9c"
    assert lane_suffix("3f2a9c", 2 << ERA_BITS, 3 << INDEX_BITS) == "@3f2a9c.2+3"


def test_long_values_of_a_lane_column_stay_distinct() -> None:
    first, second = ("x" * 500 + end for end in "ab")
    assert lane_text(first) != lane_text(second)
    assert len(lane_text(first)) < 200
    assert (lane_text("eu"), lane_text(None)) == ("eu", "null")


def test_another_timeline_has_another_birthmark() -> None:
    assert (
        len({birthmark_of("7", 1, "shop"), birthmark_of("7", 2, "shop"), birthmark_of("7", 1, "test"), birthmark_of("8", 1, "shop")}) == 4
    )
