from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.values import limits
from headrace.core.values.limits import MAX_JSON_DEPTH, is_too_deep


def nested(depth: int, kind: str) -> bytes:
    opened, closed = {"list": ("[", "]"), "object": ('{"a":', "}"), "both": ('[{"a":', "}]")}[kind]
    times = depth // 2 if kind == "both" else depth
    return (opened * times + "1" + closed * times).encode()


@pytest.mark.parametrize("kind", ["list", "object", "both"])
def test_the_depth_limit_is_exact(kind: str) -> None:
    assert not is_too_deep(nested(MAX_JSON_DEPTH, kind))
    assert is_too_deep(nested(MAX_JSON_DEPTH + 2, kind))
    assert is_too_deep(b"[" + nested(MAX_JSON_DEPTH, kind) + b"]")


def test_width_and_brackets_in_strings_do_not_count_as_depth() -> None:
    assert not is_too_deep(json.dumps([[[number]] for number in range(1000)]).encode())
    assert not is_too_deep(json.dumps(["[" * 1000, '\\"[' * 300, '"]\\', "{" * 300]).encode())
    deep = nested(MAX_JSON_DEPTH + 1, "list")
    assert is_too_deep(b'["]]]]]]]]]]]]\\\\", ' + deep + b"]")
    wide = b"[" + b",".join([nested(MAX_JSON_DEPTH - 1, "list")] * 50) + b"]"
    assert not is_too_deep(wide)
    assert is_too_deep(b"[" + wide + b"]")


def plain_depth(value: Any) -> int:
    if isinstance(value, list):
        return 1 + max(map(plain_depth, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(plain_depth, value.values()), default=0)
    return 0


TEXTS = st.text(st.sampled_from('[]{}"\\a'), max_size=6)
VALUES = st.recursive(
    st.none() | TEXTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=40
)


@given(VALUES, st.integers(1, 8))
def test_the_check_agrees_with_the_depth_of_the_value(value: Any, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_JSON_DEPTH", most)
        assert is_too_deep(json.dumps(value).encode()) is (plain_depth(value) > most)
