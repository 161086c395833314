"""Client libraries that are installed, and that are missing."""

from __future__ import annotations

import json
import sys

import pytest

from headrace.errors import UpstreamError
from headrace.sources.connections.client_library import import_library


def test_the_first_module_is_returned_and_the_others_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    assert import_library("It cannot be read: its client library", "x", "json", "json.tool") is json
    assert "json.tool" in sys.modules


@pytest.mark.parametrize("others", [(), ("json.tool",)])
def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]) -> None:
    monkeypatch.setitem(sys.modules, others[0] if others else "json", None)
    with pytest.raises(UpstreamError, match=r"^Kafka cannot be read: its client library is not installed: .+\.$") as raised:
        import_library("Kafka cannot be read: its client library", "kafka", "json", *others)
    assert raised.value.hint == "Run: pip install 'headrace[kafka]'"
    assert isinstance(raised.value.__cause__, ImportError)
