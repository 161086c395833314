from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ProjectError
from headrace.triggers.upstream import load_upstream
from support.sources.streams import MemoryUpstream


def test_an_upstream_is_written_down_and_made_again() -> None:
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
def test_what_is_no_upstream_says_so(classpath: str) -> None:
    with pytest.raises(ProjectError, match="upstream"):
        load_upstream(classpath, {})


def test_arguments_that_do_not_fit_say_so() -> None:
    with pytest.raises(ProjectError, match="colour"):
        load_upstream("support.sources.streams.MemoryUpstream", {"colour": 1})
