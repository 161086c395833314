from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.matching.patterns import match_index
from headrace.core.matching.patterns.explanation import explain
from headrace.core.matching.patterns.fields import matches_fields
from headrace.core.matching.patterns.match_index import MatchIndex
from headrace.core.matching.patterns.parser import parse_pattern
from headrace.errors import MalformedEvent
from support.patterns.slow_evaluator import evaluate
from support.patterns.strategies import EVENTS, PATTERNS


def index_of(*patterns: Any) -> MatchIndex:
    """Return an index with a trigger for each pattern, numbered from 0."""
    index = MatchIndex()
    for number, pattern in enumerate(patterns):
        index.add(None if pattern is None else parse_pattern(pattern), number)
    return index


def wants(pattern: Any, value: Any) -> bool:
    return index_of(pattern).matches(value) == [0]


def test_no_pattern_matches_everything() -> None:
    assert wants(None, {})
    assert wants(None, {"a": 1})


@pytest.mark.parametrize("value", ["x", 1, None, [], [["x"]]])
def test_a_field_is_in_no_value_that_is_not_an_object(value: Any) -> None:
    assert not wants({"a": ["x"]}, value)


def test_the_index_rejects_a_repeated_id() -> None:
    index = MatchIndex()
    index.add(None, 1)
    with pytest.raises(ValueError, match="already"):
        index.add(parse_pattern({"a": [1]}), 1)
    assert list(index) == [1]
    assert 1 in index
    index.remove(1)
    index.remove(1)
    assert index.matches({"a": 1}) == []


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the alternatives whose fields are tested one by one."""
    fields: list[Any] = []

    def counting(*args: Any) -> bool:
        fields.append(args[0])
        return matches_fields(*args)

    monkeypatch.setattr(match_index, "matches_fields", counting)
    return fields


def test_the_index_evaluates_only_candidates(tested: list[Any]) -> None:
    """A thousand watches that share a carrier and differ in the tail number are found by the tail number."""
    index = index_of(*({"carrier": ["UA"], "tail": [f"N{number}"]} for number in range(1000)))
    assert index.matches({"carrier": "UA", "tail": "N7"}) == [7]
    assert len(tested) <= 2


@given(st.lists(st.none() | PATTERNS, max_size=8), st.lists(EVENTS, max_size=4), st.randoms(use_true_random=False))
def test_the_index_returns_the_results_of_the_slow_evaluator(patterns: list[Any], events: list[Any], chance: random.Random) -> None:
    index = MatchIndex()
    present: dict[int, Any] = {}
    for number, pattern in enumerate(patterns):
        index.add(None if pattern is None else parse_pattern(pattern), number)
        present[number] = pattern
        if chance.random() < 0.3:
            removed = chance.choice(list(present))
            index.remove(removed)
            del present[removed]
    for event in events:
        matched = index.matches(event)
        assert sorted(matched) == [number for number, pattern in present.items() if pattern is None or evaluate(pattern, event)]
    for number in present:
        index.remove(number)
    assert not index._root.children
    assert not index._entries
    assert not index._absent
    assert index._repeated == 0


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


def test_a_pattern_of_the_greatest_depth_matches() -> None:
    pattern: Any = ["x"]
    event: Any = "x"
    for _ in range(200):
        pattern = {"a": pattern}
        event = [{"a": event}]
    assert wants(pattern, event)


def test_long_arrays_are_read_once_for_many_patterns() -> None:
    index = index_of(*({"tags": [number], "carrier": ["UA"], "notes": ["x"]} for number in range(1000)))
    event = {"tags": list(range(100_000)), "notes": ["y"] * 100_000, "carrier": "UA"}
    assert index.matches(event) == []
    assert len(index.matches(event | {"notes": ["y"] * 100_000 + ["x"]})) == 1000


def test_an_event_that_needs_too_many_steps_is_malformed() -> None:
    index = index_of(*({"legs": {"from": [number], "to": ["x"]}} for number in range(1000)))
    legs = [{"from": number, "to": "y"} for number in range(10_000)]
    with pytest.raises(MalformedEvent, match="1,000,000 steps"):
        index.matches({"legs": legs})
    assert index.matches({"legs": [*legs[7:8], {"from": 7, "to": "x"}]}) == [7]


KINDS: list[tuple[Any, Any, Any]] = [
    ([{"prefix": "tail-7x"}], "tail-7xx", lambda number: [{"prefix": f"tail-{number}x"}]),
    ([{"suffix": "-7"}], "tail-7", lambda number: [{"suffix": f"-{number}"}]),
    ([{"equals-ignore-case": "TAIL-7"}], "tail-7", lambda number: [{"equals-ignore-case": f"TAIL-{number}"}]),
    ([{"wildcard": "tail-7-*"}], "tail-7-x", lambda number: [{"wildcard": f"tail-{number}-*"}]),
    ([{"wildcard": "*/7/*"}], "a/7/b", lambda number: [{"wildcard": f"*/{number}/*"}]),
    ([{"numeric": [">=", 7, "<", 8]}], 7.5, lambda number: [{"numeric": [">=", number, "<", number + 1]}]),
    ([{"cidr": "10.0.7.0/24"}], "10.0.7.9", lambda number: [{"cidr": f"10.{number // 256}.{number % 256}.0/24"}]),
]


@pytest.mark.parametrize(("leaf", "value", "other"), KINDS)
def test_few_of_many_patterns_are_tested(leaf: Any, value: Any, other: Any, tested: list[Any]) -> None:
    """The second field of a pattern is read only if the first one matches."""
    index = index_of(*({"a": other(number), "b": [{"exists": True}]} for number in range(2000)))
    assert leaf == other(7)
    assert index.matches({"a": value, "b": 1}) == [7]
    assert len(tested) <= 2
    tested.clear()
    assert index.matches({"a": "none", "b": 1}) == []
    assert len(tested) <= 1


def test_an_event_is_read_along_its_own_fields_if_they_are_few() -> None:
    index = index_of(*({f"f{number}": {"x": [1]}} for number in range(10_000)))
    assert index.matches({"f7": {"x": 1}}) == [7]
    assert index.matches([{"f7": {"x": 1}}, {"f8": {"x": 1}}, {"f9": 1}]) == [7, 8]


def test_hostile_arrays_are_matched_or_malformed() -> None:
    """Neither many wildcards with one beginning, many ranges nor many exclusions cost more than the limit on long arrays."""
    texts = [f"a{number}" for number in range(20_000)]
    wildcards = index_of(*({"a": [{"wildcard": f"a*x{number}"}]} for number in range(2_000)))
    assert wildcards.matches({"a": texts}) == []
    crowded = index_of(*({"a": [{"wildcard": f"a*x{number}*c"}]} for number in range(2_000)))
    assert crowded.matches({"a": [*texts, "a-x7-c"]}) == [7]
    ranges = index_of(*({"a": [{"numeric": [">", -number]}], "b": [{"exists": False}]} for number in range(2_000)))
    with pytest.raises(MalformedEvent, match="1,000,000 steps"):
        ranges.matches({"a": list(range(20_000))})
    excluding = index_of(*({"a": [{"anything-but": {"prefix": ["a", f"b{number}"]}}]} for number in range(2_000)))
    with pytest.raises(MalformedEvent, match="1,000,000 steps"):
        excluding.matches({"a": texts})
    assert len(excluding.matches({"a": ["x", *texts]})) == 2_000


def test_a_long_text_is_read_once_for_one_pattern_and_limited_for_many() -> None:
    text = "a" * 20_000_000
    assert not wants({"a": [{"wildcard": "a*b*"}]}, {"a": text})
    assert wants({"a": [{"prefix": "aa"}]}, {"a": text})
    index = index_of(*({"a": [{"wildcard": f"*a*b{number}*"}]} for number in range(1_000)))
    with pytest.raises(MalformedEvent, match="1,000,000 steps"):
        index.matches({"a": text})


def test_bounds_beyond_floating_point_are_compared_exactly() -> None:
    huge = 10**400
    patterns = [{"a": [{"numeric": [sign, huge]}], "b": [{"numeric": [">=", 0, "<", huge]}]} for sign in ("<", "<=", ">", ">=")]
    index = index_of(*patterns)
    assert index.matches({"a": huge, "b": huge - 1}) == [1, 3]
    assert index.matches({"a": huge + 1, "b": 1.5}) == [2, 3]
    assert index.matches({"a": 1e308, "b": huge}) == []
    assert explain(parse_pattern(patterns[0]), {"a": huge, "b": 1})[0].passed == 0
