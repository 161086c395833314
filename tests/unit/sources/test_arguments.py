"""The checks of the arguments that users give to upstreams."""

from __future__ import annotations

import pytest

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_seconds, check_text


@pytest.mark.parametrize("value", ["", "a\0b", None, 3, b"orders"])
def test_a_text_is_not_empty_and_has_no_nul(value: object) -> None:
    with pytest.raises(UpstreamError, match="Invalid topic"):
        check_text("topic", value)


def test_a_text_is_returned_as_it_is() -> None:
    assert check_text("topic", "orders ü") == "orders ü"


@pytest.mark.parametrize("value", [0, 11, True, 5.0, "5", None])
def test_an_integer_outside_its_range_is_refused_with_the_unit(value: object) -> None:
    with pytest.raises(UpstreamError, match="Invalid prefetch") as refused:
        check_integer("prefetch", value, 1, 10, "messages")
    assert refused.value.hint == "Use an integer from 1 to 10 (messages)."


@pytest.mark.parametrize("value", [0, 3_601, float("nan"), float("inf"), True, "5", None])
def test_seconds_outside_their_range_are_refused(value: object) -> None:
    with pytest.raises(UpstreamError, match="Invalid wait") as refused:
        check_seconds("wait", value, 0.1, 3_600)
    assert refused.value.hint == "Use 0.1 to 3,600 seconds."


def test_seconds_may_be_an_integer() -> None:
    assert check_seconds("wait", 5, 0.1, 3_600) == 5.0


@pytest.mark.parametrize("value", [1, 10])
def test_both_ends_of_a_range_belong_to_it(value: int) -> None:
    assert check_integer("prefetch", value, 1, 10) == value
