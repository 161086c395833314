from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.matching import payloads
from headrace.core.matching.patterns.match_index import MatchIndex
from headrace.core.matching.patterns.parser import parse_pattern
from headrace.core.matching.payloads import (
    MAX_PATTERN_CHARS,
    Payload,
    PayloadIndex,
    PayloadPattern,
    parse_pattern_text,
    pattern_text,
)
from headrace.core.values.limits import MAX_JSON_DEPTH
from headrace.errors import MalformedEvent, ProjectError
from support.patterns.corpus import WHOLE
from support.patterns.slow_evaluator import evaluate
from support.patterns.strategies import EVENTS, PATTERNS

ABSENT = parse_pattern({"a": [{"exists": False}]})


def matches(pattern: Any, text: str) -> bool:
    """Return whether a payload matches a pattern that was stored."""
    return PayloadPattern(parse_pattern_text(pattern_text(pattern))).matches(Payload(text))


@given(PATTERNS, EVENTS)
def test_a_stored_pattern_matches_the_payloads_that_a_watch_matches(pattern: Any, event: Any) -> None:
    index = MatchIndex()
    index.add(parse_pattern(pattern), 7)
    text = msgspec.json.encode(event).decode()
    expected = index.matches(msgspec.json.decode(text)) == [7]
    assert matches(pattern, text) == expected == evaluate(pattern, msgspec.json.decode(text))


@given(st.lists(PATTERNS, max_size=6), EVENTS)
def test_patterns_in_one_index_match_as_each_alone(patterns: list[Any], event: Any) -> None:
    index = PayloadIndex()
    for number, pattern in enumerate(patterns):
        index.add(parse_pattern_text(pattern_text(pattern)), number)
    text = msgspec.json.encode(event).decode()
    assert sorted(index.matches(Payload(text))) == [number for number, pattern in enumerate(patterns) if matches(pattern, text)]


@pytest.mark.parametrize(("pattern", "event", "expected"), [case for case in WHOLE if type(case[1]) is dict])
def test_a_stored_pattern_matches_by_the_published_rules(pattern: Any, event: Any, expected: bool) -> None:
    assert matches(pattern, json.dumps(event)) is expected


@pytest.mark.parametrize(
    "text", ["", "{", "null", "1", '"a"', "[]", "[{}]", '{"b": 1', '{"b": NaN}', '{"b": "\ud800"}', '{"b":' * 500 + "1" + "}" * 500]
)
def test_a_payload_that_is_not_a_json_object_matches_nothing(text: str) -> None:
    assert PayloadPattern(ABSENT).matches(Payload("{}"))
    assert not PayloadPattern(ABSENT).matches(Payload(text))


def test_a_payload_is_decoded_once_and_only_for_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def decode(text: bytes) -> Any:
        decoded.append(text)
        return msgspec.json.decode(text)

    monkeypatch.setattr(payloads, "_decode", decode)
    payload, index = Payload('{"a": 1}'), PayloadIndex()
    assert (index.matches(payload), decoded, bool(index)) == ([], [], False)
    index.add(ABSENT, 3)
    assert (index.matches(payload), PayloadPattern(parse_pattern({"a": [1]})).matches(payload)) == ([], True)
    assert len(decoded) == 1
    index.remove(3)
    assert not index


def test_a_payload_too_long_for_all_patterns_matches_each_alone() -> None:
    payload = Payload(json.dumps({"a": [{"b": n, "c": n} for n in range(20_000)]}))
    patterns = [{"a": {"b": [n], "c": [n]}} for n in range(60)]
    index = PayloadIndex()
    for number, pattern in enumerate(patterns):
        index.add(parse_pattern(pattern), number)
    with pytest.raises(MalformedEvent):
        index.matches(payload)
    assert all(matches(pattern, payload.text) for pattern in patterns)
    assert not matches({"$or": patterns}, payload.text), "one pattern that is as costly as all of them"


def test_a_pattern_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = pattern_text({"parsed": ["once"]})
    first = parse_pattern_text(text)
    monkeypatch.delattr(payloads, "parse_pattern")
    assert parse_pattern_text(text) is first


def test_the_cache_drops_the_patterns_that_were_not_used_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MAX_CACHED_FIELDS", 7)
    cache = payloads._PatternCache()
    for n in range(3):  # each counts its field and itself
        cache.put(f"{n}", ABSENT)
    assert cache.get("0") is ABSENT
    cache.put("3", ABSENT)
    assert [cache.get(f"{n}") for n in range(4)] == [ABSENT, None, ABSENT, ABSENT]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"a": [{"prefx": "x"}]}, "In match=, a has the operator 'prefx', which does not exist"),
        ({"a": 1}, "In match=, a must be a list"),
        ({"a": [object()]}, "In match=, a has <object"),
        ({"a": ["\ud800"]}, "match= is not JSON"),
        ({"a": [10**5000]}, "match= is not JSON"),
        ({"a": [float("nan")]}, "match= is not JSON"),
        ([], "In match=, the pattern must be"),
        ({"a": [1], "@": {"key": ["A7"]}}, "In match=, @ names the metadata of a message, which the log does not have"),
        ({"a": ["x" * MAX_PATTERN_CHARS]}, "match= has 8,010 characters as JSON"),
    ],
)
def test_an_invalid_pattern_is_refused_in_words(pattern: Any, message: str) -> None:
    with pytest.raises(ProjectError, match=message) as refused:
        pattern_text(pattern)
    assert refused.value.hint


@pytest.mark.parametrize("text", ["", "{", "a", '{"a": [1]} x', "[" * (MAX_JSON_DEPTH + 300), "\ud800"])
def test_a_pattern_that_is_not_json_is_refused_in_words(text: str) -> None:
    with pytest.raises(ProjectError, match="--match is"):
        parse_pattern_text(text, "--match")


def test_a_pattern_of_the_maximum_length_fits_into_a_request() -> None:
    pattern = {"é": ["x" * 1_000 for _ in range(7)]}
    text = pattern_text(pattern)
    assert text.isascii()
    assert len(text) < MAX_PATTERN_CHARS
    assert parse_pattern_text(text) == parse_pattern(pattern)
