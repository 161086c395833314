from __future__ import annotations

import pytest

from headrace.sources.directory import lane, lanes


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file be quiet, and one that cannot be read be tried again, after a tenth of a second."""
    monkeypatch.setattr(lane, "QUIET", 0.1)
    monkeypatch.setattr(lanes, "QUIET", 0.1)
    monkeypatch.setattr(lanes, "FIRST_PAUSE", 0.1)
