"""Subject filters: which are valid, which overlap, and the names that are made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UpstreamError
from headrace.sources.nats.subjects import MAX_LANES, check_subjects, consumer_name, covers, lane_name, overlap

SUBJECTS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4)
FILTERS = st.tuples(st.lists(st.sampled_from(["a", "b", "*"]), max_size=3), st.sampled_from(["a", "b", "*", ">"])).map(
    lambda parts: ".".join((*parts[0], parts[1]))
)


def matches(filter: str, subject: list[str]) -> bool:
    *head, last = filter.split(".")
    if last == ">":
        head, subject, is_long = head, subject[: len(head)], len(subject) > len(head)
    else:
        head, is_long = [*head, last], True
    return is_long and len(head) == len(subject) and all(one in ("*", other) for one, other in zip(head, subject, strict=True))


@given(FILTERS, FILTERS, SUBJECTS)
def test_filters_that_match_one_subject_overlap(one: str, other: str, subject: list[str]) -> None:
    if matches(one, subject) and matches(other, subject):
        assert overlap(one, other)
        assert overlap(other, one)


@given(FILTERS, FILTERS, SUBJECTS)
def test_a_filter_that_covers_another_matches_all_of_its_subjects(one: str, other: str, subject: list[str]) -> None:
    if covers(one, [other]):
        assert matches(one, subject) or not matches(other, subject)


@pytest.mark.parametrize(
    ("one", "other"), [("a", "b"), ("a.b", "a"), ("a.*", "a"), ("a.>", "a"), ("a.*.c", "a.b.d"), ("*.a", "*.b"), ("a.*", "a.b.>")]
)
def test_disjoint_filters_do_not_overlap(one: str, other: str) -> None:
    assert not overlap(one, other)
    assert check_subjects([other, one, other]) == tuple(sorted({one, other}))


@pytest.mark.parametrize(
    "filter", ["", "a..b", ".a", "a.", "a b", "a.>.b", "a*", ">a", "a\n", "a\0", "x" * 256, "$JS.API.>", 5, None, ["a"]]
)
def test_invalid_filters_are_refused(filter: object) -> None:
    with pytest.raises(UpstreamError, match="Invalid subject"):
        check_subjects([filter])


def test_overlapping_none_and_too_many_filters_are_refused() -> None:
    with pytest.raises(UpstreamError, match=r"'orders.\*' and 'orders.eu' overlap"):
        check_subjects(["orders.eu", "orders.*"])
    with pytest.raises(UpstreamError, match="0 are given"):
        check_subjects([])
    with pytest.raises(UpstreamError, match=f"{MAX_LANES + 1} are given"):
        check_subjects([f"s{number}" for number in range(MAX_LANES + 1)])


@pytest.mark.parametrize("subjects", [5, None, b"orders", {"orders": 1}])
def test_what_is_no_text_and_no_list_is_refused(subjects: object) -> None:
    with pytest.raises(UpstreamError, match="Invalid subjects"):
        check_subjects(subjects)


def test_a_filter_covers_a_stream_whose_subjects_it_matches() -> None:
    assert covers(">", [])
    assert covers("orders.>", ["orders.*", "orders.eu.>"])
    assert covers("*.eu", ["orders.eu"])
    assert not covers("orders.*", ["orders.>"])
    assert not covers("orders.>", ["orders"])
    assert not covers("orders.eu", ["orders.*"])


def test_names_are_readable_and_distinct() -> None:
    name = consumer_name("shop", "orders.*.>")
    assert name.startswith("shop-orders_any_all-")
    assert name != consumer_name("shop", "orders_any_all")
    assert len(consumer_name("d" * 100, "é" * 255)) < 200
    assert lane_name("a", "2026-01-01T00:00:00Z") != lane_name("a", "2026-01-01T00:00:01Z")
    assert lane_name("a.b", "2026-01-01T00:00:00Z").startswith("a.b@")
