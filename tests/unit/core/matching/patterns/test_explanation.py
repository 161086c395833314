from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from headrace.core.matching.patterns.explanation import explain
from headrace.core.matching.patterns.parser import parse_pattern
from support.patterns.slow_evaluator import evaluate
from support.patterns.strategies import EVENTS, PATTERNS


def reasons(pattern: Any, event: Any) -> list[str]:
    return [mismatch.reason for mismatch in explain(parse_pattern(pattern), event)]


@pytest.mark.parametrize(
    ("pattern", "event", "reason"),
    [
        ({"a": ["x"]}, {"a": "y"}, 'a is "y"; the pattern needs "x"'),
        ({"a": {"b": ["x", 1, True, None]}}, {"a": {}}, 'a.b is absent; the pattern needs one of ["x",1,true,null]'),
        ({"a": ["x"]}, {"a": {"x": 1}}, 'a is an object; the pattern needs "x"'),
        ({"a": ["x"]}, {"a": []}, 'a is absent; the pattern needs "x"'),
        ({"a": ["x"]}, {"a": [1, [2], "y", None]}, 'a has the values 1, "y", null, …; the pattern needs "x"'),
        ({"a": ["x"]}, {"a": "y" * 200}, f'a is "{"y" * 99} …; the pattern needs "x"'),
        ({"a": [{"exists": False}]}, {"a": 1}, "a is 1; the pattern needs its absence"),
        ({"a": [{"exists": True}]}, {}, 'a is absent; the pattern needs {"exists":true}'),
        ({"a": [{"prefix": "x"}]}, {"a": 1}, 'a is 1; the pattern needs {"prefix":"x"}'),
        ({"a": [{"prefix": {"equals-ignore-case": "X"}}]}, {}, 'a is absent; the pattern needs {"prefix":{"equals-ignore-case":"x"}}'),
        ({"a": [{"suffix": "x"}]}, {}, 'a is absent; the pattern needs {"suffix":"x"}'),
        ({"a": [{"equals-ignore-case": "X"}]}, {}, 'a is absent; the pattern needs {"equals-ignore-case":"x"}'),
        ({"a": [{"wildcard": "a*\\*\\\\"}]}, {}, 'a is absent; the pattern needs {"wildcard":"a*\\\\*\\\\\\\\"}'),
        ({"a": [{"numeric": [">", 1, "<=", 2]}]}, {"a": 1}, 'a is 1; the pattern needs {"numeric":[">",1,"<=",2]}'),
        ({"a": [{"numeric": [">=", 1]}]}, {"a": 0}, 'a is 0; the pattern needs {"numeric":[">=",1]}'),
        ({"a": [{"numeric": ["<", 1]}]}, {"a": 1}, 'a is 1; the pattern needs {"numeric":["<",1]}'),
        ({"a": [{"cidr": "10.1.2.3/8"}]}, {}, 'a is absent; the pattern needs {"cidr":"10.0.0.0/8"}'),
        ({"a": [{"cidr": "2001:db8::/32"}]}, {}, 'a is absent; the pattern needs {"cidr":"2001:db8::/32"}'),
        ({"a": [{"anything-but": "x"}]}, {"a": "x"}, 'a is "x"; the pattern needs {"anything-but":"x"}'),
        (
            {"a": [{"anything-but": {"prefix": ["x", "y"]}}]},
            {},
            'a is absent; the pattern needs {"anything-but":[{"prefix":"x"},{"prefix":"y"}]}',
        ),
        (
            {"a": {"b": [1], "c": [2]}},
            {"a": [{"b": 1}, {"c": 2}]},
            "each of a.b, a.c passes, but no single element of an array has all of them",
        ),
    ],
)
def test_the_first_field_that_fails_is_named_with_its_values(pattern: Any, event: Any, reason: str) -> None:
    assert reasons(pattern, event) == [reason]


def test_the_nearest_alternative_is_the_first() -> None:
    pattern = {"$or": [{"a": [1]}, {"b": [1], "c": [1]}]}
    assert reasons(pattern, {"b": 1, "c": 2}) == ["c is 2; the pattern needs 1", "a is absent; the pattern needs 1"]
    assert reasons(pattern, {"a": 1}) == []


@given(PATTERNS, EVENTS)
def test_an_event_has_a_reason_if_it_does_not_match(pattern: Any, event: Any) -> None:
    assert (reasons(pattern, event) == []) is evaluate(pattern, event)
