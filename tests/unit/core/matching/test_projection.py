"""A projection finds the same matches and fields as the whole value, and returns no text that the whole decoder refuses."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.matching import projection as module
from headrace.core.matching.paths import JsonPath
from headrace.core.matching.patterns.match_index import MatchIndex
from headrace.core.matching.patterns.parser import parse_pattern
from headrace.core.matching.projection import Projection
from support.patterns.strategies import EVENTS, PATTERNS

PATHS = st.sampled_from(["$.a", "$.b.c", "$.c[0]", "$.c[1].d", "$.d.d.a[0].b", "$.a.b.c.d"]).map(JsonPath.parse)
SEEDS = [
    b'{"a":1,"b":[{"c":-1.5e3},[null]],"x":"t\\u00e9\\ud83d\\ude00","y":{"z":true,"a":[]}}',
    '{"a":"é","naïve":[0.1,"ß"],"b":{"c":{"c":"\\"\\\\"}}}'.encode(),
    b' { "a" : { } , "x" : [ [ ] , 12345678901234567890123 ] } ',
]
BYTES = [*range(0x20, 0x7F), 0x00, 0x0A, 0x80, 0xC3, 0xE9, 0xED, 0xF0, 0xFF]


def of(*paths: Any) -> Projection:
    """Return a projection of these paths."""
    projection = Projection()
    for path in paths:
        projection.add(path)
    return projection


def texts(value: Any, chance: random.Random) -> bytes:
    """Return JSON of an object with a repeated field, and with escapes that only a decoder resolves."""
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
    if isinstance(value, dict) and value and chance.random() < 0.5:
        text = "{" + json.dumps(chance.choice([*value])) + ":" + json.dumps(chance.choice([*value.values()])) + "," + text[1:]
    return text.replace('"a":', '"\\u0061":', 1).encode()


@given(st.lists(PATTERNS, max_size=4), st.lists(PATHS, max_size=3), EVENTS, st.randoms(use_true_random=False))
def test_a_projection_has_the_matches_and_fields_of_the_whole_value(
    patterns: list[Any], paths: list[JsonPath], event: Any, chance: random.Random
) -> None:
    index, projection = MatchIndex(), Projection()
    for number, pattern in enumerate(map(parse_pattern, patterns)):
        index.add(pattern, number)
        for path in pattern.paths:
            projection.add(path)
    for declared in paths:
        projection.add(declared.steps)
    text = texts(event, chance)
    whole = msgspec.json.decode(text)
    fields = projection.decode(text)
    assert fields is not None, text
    assert sorted(index.matches(fields)) == sorted(index.matches(whole))
    assert [path.find(fields) for path in paths] == [path.find(whole) for path in paths]


@pytest.mark.parametrize("seed", range(20))
def test_no_text_is_read_that_the_whole_decoder_refuses(seed: int) -> None:
    chance = random.Random(seed)
    projections = [of(), of(("a",)), of(("b", "c")), of(("b", "c", "c"), ("x",))]
    refused = 0
    for _ in range(2_000):
        text = bytearray(chance.choice(SEEDS))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(text))
            text[at : at + chance.choice((0, 1, 1, 4))] = bytes(chance.choices(BYTES, k=chance.choice((0, 1, 1, 2))))
        try:
            msgspec.json.decode(bytes(text))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            refused += 1
            if "out of range" not in str(error):
                assert all(projection.decode(bytes(text)) is None for projection in projections), bytes(text)
    assert refused > 500


def test_a_number_out_of_range_is_refused_only_in_a_field_that_is_read() -> None:
    assert of(("a",)).decode(b'{"a":1,"b":1e999}') == {"a": 1}
    assert of(("b",)).decode(b'{"a":1,"b":1e999}') is None


@pytest.mark.parametrize("text", [b"[1]", b"1", b"null", b'"x"', b"", b"{", b'{"a":1}x', b"\xef\xbb\xbf{}"])
def test_a_text_that_is_no_object_is_not_read(text: bytes) -> None:
    assert of(("a",)).decode(text) is None


def test_the_value_of_a_field_is_whole_if_a_shorter_path_reads_it() -> None:
    text = b'{"a":{"b":1,"c":2},"d":{"b":1,"c":2}}'
    assert of(("a", "b"), ("a",), ("d",), ("d", "b")).decode(text) == {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 2}}


def test_an_object_with_many_named_fields_is_decoded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NAMES", 2)
    assert of(("a", "x"), ("a", "y"), ("a", "z"), ("b", "x")).decode(b'{"a":{"q":1},"b":{"q":1},"c":1}') == {"a": {"q": 1}, "b": {}}


def test_deep_paths_are_read() -> None:
    text = b'{"a":' * 190 + b"1" + b"}" * 190
    assert of(("a",) * 190).decode(text) == msgspec.json.decode(text)
