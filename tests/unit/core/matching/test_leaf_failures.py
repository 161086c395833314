"""Which fields of a pattern fail on an event, each on its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from headrace.core.matching.leaf_failures import MAX_PATH_CHARS, failed_paths, leaf_groups, matches_pattern, path_text
from headrace.core.matching.paths import METADATA_FIELD
from headrace.core.matching.patterns.arrays import Arrays
from headrace.core.matching.patterns.explanation import explain
from headrace.core.matching.patterns.parser import parse_pattern
from support.patterns.strategies import EVENTS, PATTERNS


def failures(pattern: Any, event: Any) -> dict[str, bool]:
    groups = leaf_groups(parse_pattern(pattern))
    return dict(zip(map(path_text, groups), failed_paths(groups, event, Arrays()), strict=True))


@pytest.mark.parametrize(
    ("pattern", "event", "failed"),
    [
        ({"a": [1], "b": {"c": ["x"]}}, {"a": 1, "b": {"c": "y"}}, {"a": False, "b.c": True}),
        ({"a": [1], "b": [2]}, {}, {"a": True, "b": True}),
        ({"a": [1], "$or": [{"b": [2]}, {"c": [3]}]}, {"a": 1, "c": 3}, {"a": False, "b": True, "c": False}),
        ({"$or": [{"a": [1], "b": [2]}, {"a": [3]}]}, {"a": 3}, {"a": False, "b": True}),
        ({"a": [1, {"exists": False}]}, {}, {"a": False}),
    ],
)
def test_each_field_is_tested_on_its_own(pattern: Any, event: Any, failed: dict[str, bool]) -> None:
    assert failures(pattern, event) == failed


@given(PATTERNS, EVENTS)
def test_an_event_that_matches_fails_at_no_field_of_one_alternative(pattern: Any, event: Any) -> None:
    parsed = parse_pattern(pattern)
    matches = matches_pattern(parsed, event, Arrays())
    assert matches == (not explain(parsed, event))
    groups = leaf_groups(parsed)
    failed = dict(zip(groups, failed_paths(groups, event, Arrays()), strict=True))
    if matches:
        assert any(not any(failed[path] for path, _ in fields) for fields in parsed.alternatives)


def test_paths_are_written_as_users_do_and_cut() -> None:
    assert path_text((METADATA_FIELD, "headers", "id")) == "@.headers.id"
    assert path_text(("x" * 200,)) == "x" * (MAX_PATH_CHARS - 1) + "…"
