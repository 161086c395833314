from __future__ import annotations

from typing import Any

import pytest

from headrace.core.matching.paths import JsonPath
from headrace.errors import ProjectError

VALUE = {"a": {"b": [10, {"c d": None, "é": False}]}, "x.y": 0}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.a.b[0]", 10),
        ("$.a.b[1].é", False),
        ("$['a'].b[1]['c d']", None),
        ("$['x.y']", 0),
        ("$.a.b[2]", None),
        ("$.a.b.c", None),
        ("$.a[0]", None),
        ("$.nothing.at.all", None),
        ("$[0]", None),
    ],
)
def test_find_returns_the_value_at_a_path(path: str, found: Any) -> None:
    assert JsonPath.parse(path).find(VALUE) == found


@pytest.mark.parametrize("text", ["", "$", "a.b", "$a", "$.", "$..a", "$.a[", "$.a[x]", "$.a[-1]", "$.a b", " $.a", "$.a "])
def test_an_invalid_path_is_rejected_with_a_hint(text: str) -> None:
    with pytest.raises(ProjectError, match="is not a path") as caught:
        JsonPath.parse(text)
    assert caught.value.hint


def test_paths_are_equal_by_their_text() -> None:
    assert JsonPath.parse("$.a") == JsonPath.parse("$.a")
    assert len({JsonPath.parse("$.a"), JsonPath.parse("$.a"), JsonPath.parse("$.b")}) == 2
    assert str(JsonPath.parse("$.a[0]")) == "$.a[0]"
