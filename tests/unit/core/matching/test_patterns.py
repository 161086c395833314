from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.matching.patterns import MatchIndex, leaves
from headrace.errors import MalformedEvent, ProjectError


def wants(pattern: Any, value: Any) -> bool:
    index = MatchIndex()
    index.add(pattern, 1)
    return index.matches(value) == [1]


@pytest.mark.parametrize(
    ("pattern", "value", "wanted"),
    [
        (None, {}, True),
        ({"a": ["x"]}, {"a": "x", "b": 1}, True),
        ({"a": ["x", "y"]}, {"a": "y"}, True),
        ({"a": ["x"]}, {"a": "X"}, False),
        ({"a": ["x"]}, {}, False),
        ({"a": ["x"]}, {"a": {"x": 1}}, False),
        ({"a": [None]}, {"a": None}, True),
        ({"a": [None]}, {}, False),
        ({"a": [1]}, {"a": 1.0}, True),
        ({"a": [1]}, {"a": True}, False),
        ({"a": [True]}, {"a": 1}, False),
        ({"a": [False]}, {"a": False}, True),
        ({"a": ["1"]}, {"a": 1}, False),
        ({"a": ["x"]}, {"a": ["z", ["x"]]}, True),
        ({"a": ["x"]}, {"a": []}, False),
        ({"a": {"b": ["x"]}}, {"a": {"b": "x"}}, True),
        ({"a": {"b": ["x"]}}, {"a": [{"b": "y"}, {"b": "x"}]}, True),
        ({"a": {"b": ["x"], "c": [1]}}, {"a": [{"b": "x", "c": 2}, {"b": "y", "c": 1}]}, False),
        ({"a": {"b": ["x"], "c": [1]}}, {"a": [{"b": "x", "c": 2}, {"b": "x", "c": 1}]}, True),
        ({"a": ["x"], "b": ["y"]}, {"a": "x", "b": "z"}, False),
        ({"a": ["x"], "b": {"c": ["y"]}}, {"a": "x", "b": {"c": ["y"]}}, True),
        ({"a": ["x"]}, "x", False),
        ({"a": ["x"]}, [{"a": "x"}], True),
    ],
)
def test_a_pattern_matches_values(pattern: Any, value: Any, wanted: bool) -> None:
    assert wants(pattern, value) is wanted


@pytest.mark.parametrize("pattern", [{}, {"a": []}, {"a": "x"}, {"a": {}}, {"a": [{"prefix": "x"}]}, {"a": [["x"]]}, {1: ["x"]}, ["x"], 3])
def test_an_invalid_pattern_is_rejected_with_a_hint(pattern: Any) -> None:
    with pytest.raises(ProjectError, match="match=") as caught:
        leaves(pattern)
    assert caught.value.hint
    index = MatchIndex()
    with pytest.raises(ProjectError):
        index.add(pattern, 1)
    assert len(index) == 0


def test_leaves_returns_the_values_of_each_path() -> None:
    assert leaves({"a": {"b": ["x", True]}, "c": [1]}) == {("a", "b"): frozenset({"x", (True,)}), ("c",): frozenset({1})}


def test_the_index_rejects_a_repeated_id() -> None:
    index = MatchIndex()
    index.add(None, 1)
    with pytest.raises(ValueError, match="already"):
        index.add({"a": [1]}, 1)
    assert list(index) == [1]
    assert 1 in index
    index.remove(1)
    index.remove(1)
    assert index.matches({"a": 1}) == []


def test_the_index_evaluates_only_candidates() -> None:
    """A thousand watches that share a carrier and differ in the tail number are found by the tail number."""
    index = MatchIndex()
    for number in range(1000):
        index.add({"carrier": ["UA"], "tail": [f"N{number}"]}, number)

    class Counting(dict[str, Any]):
        looked = 0

        def __getitem__(self, name: str) -> Any:
            Counting.looked += 1
            return super().__getitem__(name)

    assert index.matches(Counting(carrier="UA", tail="N7")) == [7]
    assert Counting.looked < 10


SCALARS = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["x", "y", 1.0])
NAMES = st.sampled_from("abc")
PATTERNS = st.recursive(
    st.lists(SCALARS, min_size=1, max_size=2),
    lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3),
    max_leaves=4,
).filter(lambda pattern: isinstance(pattern, dict))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12)


def same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) is isinstance(right, bool) and left == right


def plainly(pattern: Any, value: Any) -> bool:
    """What matching means, in as few words as it can be said."""
    if isinstance(value, list):
        return any(plainly(pattern, element) for element in value)
    if isinstance(pattern, list):
        return not isinstance(value, dict) and any(same(wanted, value) for wanted in pattern)
    return isinstance(value, dict) and all(name in value and plainly(pattern[name], value[name]) for name in pattern)


@given(st.lists(st.none() | PATTERNS, max_size=8), st.lists(VALUES, max_size=4), st.randoms(use_true_random=False))
def test_the_index_returns_the_results_of_plain_matching(patterns: list[Any], values: list[Any], chance: random.Random) -> None:
    index = MatchIndex()
    there: dict[int, Any] = {}
    for number, pattern in enumerate(patterns):
        index.add(pattern, number)
        there[number] = pattern
        if chance.random() < 0.3:
            gone = chance.choice(list(there))
            index.remove(gone)
            del there[gone]
    for value in values:
        found = index.matches(value)
        assert sorted(found) == [number for number, pattern in there.items() if pattern is None or plainly(pattern, value)]
    for number in there:
        index.remove(number)
    assert not index._pivots
    assert not index._entries


def deep(depth: int, inside: Any) -> Any:
    for _ in range(depth):
        inside = [inside]
    return inside


@pytest.mark.parametrize("depth", [1, 200, 5000])
def test_arrays_of_any_depth_are_matched(depth: int) -> None:
    """Streams A2: 340 arrays, one in the other, raised RecursionError out of the poll, again and again."""
    assert wants({"a": ["x"]}, {"a": deep(depth, "x")})
    assert wants({"a": ["x"], "b": {"c": [1]}}, {"a": deep(depth, "x"), "b": deep(depth, {"c": deep(depth, 1)})})
    assert not wants({"a": ["x"], "b": {"c": [1]}}, {"a": deep(depth, "x"), "b": deep(depth, {"c": deep(depth, 2)})})
    assert wants({"a": ["x"]}, deep(depth, {"a": "x"}))


def test_a_pattern_has_a_limited_depth() -> None:
    pattern: Any = ["x"]
    for _ in range(201):
        pattern = {"a": pattern}
    with pytest.raises(ProjectError, match="deeper than 200"):
        leaves(pattern)
    pattern = pattern["a"]
    event: Any = "x"
    for _ in range(200):
        event = [{"a": event}]
    assert wants(pattern, event)
    pattern["a"] = pattern
    with pytest.raises(ProjectError, match="deeper than 200"):
        leaves(pattern)


def test_long_arrays_are_read_once_for_many_patterns() -> None:
    index = MatchIndex()
    for number in range(1000):
        index.add({"tags": [number], "carrier": ["UA"], "notes": ["x"]}, number)
    event = {"tags": list(range(100_000)), "notes": ["y"] * 100_000, "carrier": "UA"}
    assert index.matches(event) == []
    assert len(index.matches(event | {"notes": ["y"] * 100_000 + ["x"]})) == 1000


def test_an_event_that_needs_too_many_steps_is_malformed() -> None:
    index = MatchIndex()
    for number in range(1000):
        index.add({"legs": {"from": [number], "to": ["x"]}}, number)
    legs = [{"from": number, "to": "y"} for number in range(10_000)]
    with pytest.raises(MalformedEvent, match="1,000,000 steps"):
        index.matches({"legs": legs})
    assert index.matches({"legs": [*legs[7:8], {"from": 7, "to": "x"}]}) == [7]
