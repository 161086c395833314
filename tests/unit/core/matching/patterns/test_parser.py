from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.matching.patterns.operators import Leaf, Prefix
from headrace.core.matching.patterns.parser import MAX_ALTERNATIVES, parse_pattern
from headrace.errors import ProjectError
from support.patterns.strategies import PATTERNS


@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        ({}, "the pattern must be a list of values, or fields", "Write it like"),
        (3, "the pattern must be a list of values", r"as a list: \[3\]"),
        (["x"], "the pattern must be a list of values, or fields", "Write it like"),
        ({"a": []}, "a has an empty list, so nothing could ever match", "Write it like"),
        ({"a": {"b": "x"}}, "a.b must be a list of values, or fields with lists of values, not 'x'", r"as a list: \['x'\]"),
        ({"a": {}}, "a must be a list of values, or fields", "Write it like"),
        ({"a": [["x"]]}, r"a has \['x'\]: a value is a text, a number, true, false, null or an operator", "Write it like"),
        ({"a": [float("nan")]}, "a has nan: a value is", "Write it like"),
        ({"a": [b"x"]}, "a has b'x': a value is", "Write it like"),
        ({1: ["x"]}, "the pattern has a field 1 that is not a text", "Write it like"),
        ({"a": {"b": [{"prefx": "x"}]}}, "a.b has the operator 'prefx', which does not exist", "Do you mean 'prefix'"),
        ({"a": [{"regex": "x"}]}, "a has the operator 'regex', which does not exist", "The operators are prefix, suffix"),
        ({"a": [{}]}, "a has an object of 0 fields; an operator has one", "Write it like"),
        ({"a": [{"prefix": "x", "suffix": "y"}]}, "a has an object of 2 fields; an operator has one", "Write it like"),
        ({"a": [{3: "x"}]}, "a has the operator 3, which does not exist", "The operators are"),
        ({"a": [{"prefix": 3}]}, "prefix of a must be a text, not 3", "Write it like"),
        ({"a": [{"prefix": {"ignore-case": "x"}}]}, 'prefix of a must be a text, or {"equals-ignore-case": text}', "Write it like"),
        ({"a": [{"prefix": ["x", "y"]}]}, "prefix of a must be a text, not", "Write it like"),
        ({"a": [{"suffix": {"equals-ignore-case": 1}}]}, "suffix of a must be a text, not 1", "Write it like"),
        ({"a": [{"equals-ignore-case": ["x"]}]}, "equals-ignore-case of a must be a text", "Write it like"),
        ({"a": [{"wildcard": "x**y"}]}, "wildcard of a has two asterisks in a row", "One asterisk stands for any text"),
        ({"a": [{"wildcard": "x\\y"}]}, "wildcard of a has a backslash before neither", "Write a backslash as"),
        ({"a": [{"wildcard": "x\\"}]}, "wildcard of a has a backslash before neither", "Write a backslash as"),
        ({"a": [{"numeric": 3}]}, "numeric of a must be a list of one or two comparisons", "Write it like"),
        ({"a": [{"numeric": [">"]}]}, "numeric of a must be a list of one or two comparisons", "Write it like"),
        ({"a": [{"numeric": [">", "3"]}]}, "numeric of a has the bound '3', which is not a number", "Write it like"),
        ({"a": [{"numeric": [">", True]}]}, "numeric of a has the bound True, which is not a number", "Write it like"),
        ({"a": [{"numeric": [">", float("inf")]}]}, "numeric of a has the bound inf", "Write it like"),
        ({"a": [{"numeric": ["!=", 3]}]}, "numeric of a has the comparison '!='; there are =, <, <=, > and >=", "Write it like"),
        ({"a": [{"numeric": [[], 3]}]}, r"numeric of a has the comparison \[\]", "Write it like"),
        (
            {"a": [{"numeric": ["<", 5, ">", 0]}]},
            "two comparisons that are not a lower and then an upper",
            "Write it like",
        ),
        (
            {"a": [{"numeric": ["=", 5, "<", 9]}]},
            "two comparisons that are not a lower and then an upper",
            "Write it like",
        ),
        ({"a": [{"numeric": [">", 5, "<=", 5]}]}, "numeric of a has a range without numbers", "Write it like"),
        ({"a": [{"cidr": "10.0.0.0"}]}, "cidr of a is not an address and the length of its network", "Write it like"),
        ({"a": [{"cidr": "10.0.0.0/33"}]}, "cidr of a is not an address", "Write it like"),
        ({"a": [{"cidr": "10.0.0/8"}]}, "cidr of a is not an address", "Write it like"),
        ({"a": [{"cidr": "::/129"}]}, "cidr of a is not an address", "Write it like"),
        ({"a": [{"cidr": "10.0.0.0/8/8"}]}, "cidr of a is not an address", "Write it like"),
        ({"a": [{"cidr": "10.0.0.0/-1"}]}, "cidr of a is not an address", "Write it like"),
        ({"a": [{"cidr": 7}]}, "cidr of a must be a text that is not empty", "Write it like"),
        ({"a": [{"exists": "true"}]}, "exists of a must be true or false", "Write it like"),
        ({"a": [{"anything-but": []}]}, "anything-but of a must have texts only, or numbers only", "Write it like"),
        ({"a": [{"anything-but": ["x", 1]}]}, "anything-but of a must have texts only, or numbers only", "Write it like"),
        ({"a": [{"anything-but": None}]}, "anything-but of a must have texts only, or numbers only", "Write it like"),
        ({"a": [{"anything-but": [True]}]}, "anything-but of a must have texts only, or numbers only", "Write it like"),
        ({"a": [{"anything-but": {"cidr": "::/0"}}]}, "anything-but of a can have one of prefix, suffix", "Write it like"),
        ({"a": [{"anything-but": {}}]}, "anything-but of a can have one of prefix, suffix", "Write it like"),
        ({"a": [{"anything-but": {"prefix": ""}}]}, "prefix in anything-but of a must be a text that is not empty", "Write it like"),
        ({"a": [{"anything-but": {"prefix": []}}]}, "prefix in anything-but of a has an empty list", "Write it like"),
        ({"a": [{"anything-but": {"suffix": ["x", 1]}}]}, "suffix in anything-but of a must be a text", "Write it like"),
        ({"$or": [{"a": [1]}]}, r"\$or must be a list of at least two patterns", "Write it like"),
        ({"$or": {"a": [1]}}, r"\$or must be a list of at least two patterns", "Write it like"),
        ({"b": {"$or": [{"a": [1]}, 3]}}, "b must be a list of values, or fields with lists of values, not 3", r"\[3\]"),
        ({"$or": [{"prefix": "x"}, {"a": [1]}]}, r"\$or has the operator 'prefix' instead of a field", "Name the field"),
        ({"a": [1], "$or": [{"a": [2]}, {"b": [1]}]}, r"a is named beside \$or and again within it", "Name each field once"),
        ({"$or": [{"a": [2]}, {"b": [1]}], "a": [1]}, r"a is named beside \$or and again within it", "Name each field once"),
        (
            {"a": [1], "$or": [{"a": {"c": [2]}}, {"b": [1]}]},
            r"a has values beside \$or, and fields within it",
            "either a value or an object",
        ),
        ({"a": [{"prefix": "x" * 1001}]}, "prefix of a is longer than 1,000 characters", "Write it like"),
    ],
)
def test_an_invalid_pattern_is_refused_with_its_path_and_a_hint(pattern: Any, message: str, hint: str) -> None:
    with pytest.raises(ProjectError, match=f"In match=, .*{message}") as caught:
        parse_pattern(pattern)
    assert caught.value.hint is not None
    assert re.search(hint, caught.value.hint)


def test_the_argument_is_named() -> None:
    with pytest.raises(ProjectError, match="In fail=, the pattern must be"):
        parse_pattern({}, "fail=")


def test_a_pattern_has_a_limited_depth() -> None:
    pattern: Any = ["x"]
    for _ in range(200):
        pattern = {"a": pattern}
    parse_pattern(pattern)
    with pytest.raises(ProjectError, match="deeper than 200"):
        parse_pattern({"a": pattern})
    circle: Any = {"b": [1]}
    circle["$or"] = [circle, circle]
    with pytest.raises(ProjectError, match="deeper than 200"):
        parse_pattern(circle)


def test_alternatives_are_limited_before_they_are_expanded() -> None:
    pattern = {f"f{number}": {"$or": [{"a": [1]}, {"b": [2]}]} for number in range(64)}
    with pytest.raises(ProjectError, match="more than 1,000 alternatives") as caught:
        parse_pattern(pattern)
    assert "several watches" in (caught.value.hint or "")
    ten = dict(list(pattern.items())[:9])
    assert len(parse_pattern(ten).alternatives) == 512 < MAX_ALTERNATIVES


def test_fields_are_limited() -> None:
    wide = {f"f{number}": [number] for number in range(10_000)}
    parse_pattern(wide)
    with pytest.raises(ProjectError, match="more than 10,000 fields"):
        parse_pattern(wide | {"$or": [{"a": [1]}, {"b": [1]}]})


def test_an_absence_beside_other_values_is_an_alternative() -> None:
    parsed = parse_pattern({"a": [{"exists": False}, {"prefix": "x"}, 1]})
    assert parsed.alternatives == (((("a",), Leaf((1,), (Prefix("x"),))),), ((("a",), Leaf(absent=True)),))


def test_a_field_at_the_top_level_is_renamed_in_all_alternatives() -> None:
    parsed = parse_pattern({"$or": [{"@": {"key": [1]}}, {"a": {"@": [2]}}]})
    assert parsed.has_field("@")
    renamed = parsed.with_field_renamed("@", "new")
    assert [path for fields in renamed.alternatives for path, _ in fields] == [("new", "key"), ("a", "@")]
    assert not renamed.has_field("@")


@given(PATTERNS)
def test_valid_patterns_are_parsed(pattern: Any) -> None:
    assert parse_pattern(pattern).alternatives


_NAMES = st.sampled_from(["a", "$or", "prefix", "anything-but", "numeric", "exists", "wildcard", "equals-ignore-case", "cidr", ">"])
_ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.floats()
    | st.text("x*\\/:1", max_size=3)
    | st.binary(max_size=1)
    | st.sampled_from([">", "=", "<"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES | st.integers(0, 1), inner, max_size=3),
    max_leaves=20,
)


@given(_ANYTHING | st.dictionaries(_NAMES, st.lists(st.dictionaries(_NAMES, _ANYTHING, min_size=1, max_size=1), max_size=3)))
def test_any_value_is_parsed_or_refused_in_words(value: Any) -> None:
    with suppress(ProjectError):
        parse_pattern(value)
