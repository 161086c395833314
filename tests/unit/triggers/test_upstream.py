from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ProjectError
from headrace.triggers.upstream import load_upstream
from support.sources.streams import MemoryUpstream


def test_an_upstream_is_restored_from_its_serialized_form() -> None:
    upstream = MemoryUpstream("orders")
    again = load_upstream(*upstream.serialize())
    assert isinstance(again, MemoryUpstream)
    assert again.stream_key() == upstream.stream_key() == "orders"
    assert upstream.source == "headrace:orders"
    assert upstream.relative_to(Path("/")) is upstream


@pytest.mark.parametrize(
    "classpath",
    [
        "nowhere.at.all.Upstream",
        "support.sources.streams.Nothing",
        "Bare",
        "",
        "support.sources.streams.Feed",
        "support.sources.streams.until",
    ],
)
def test_a_class_path_that_is_not_an_upstream_is_rejected(classpath: str) -> None:
    with pytest.raises(ProjectError, match="upstream"):
        load_upstream(classpath, {})


def test_invalid_arguments_of_an_upstream_are_named() -> None:
    with pytest.raises(ProjectError, match="colour"):
        load_upstream("support.sources.streams.MemoryUpstream", {"colour": 1})
