from __future__ import annotations

import pytest

from headrace.sources import directory_lane, directory_lanes


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file be quiet, and one that cannot be read be tried again, after a tenth of a second."""
    monkeypatch.setattr(directory_lane, "QUIET", 0.1)
    monkeypatch.setattr(directory_lanes, "QUIET", 0.1)
    monkeypatch.setattr(directory_lanes, "FIRST_PAUSE", 0.1)
