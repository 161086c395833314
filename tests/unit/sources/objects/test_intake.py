"""Pauses between attempts."""

from __future__ import annotations

import pytest

from headrace.sources.objects.intake import MAX_RETRY_SECONDS, _pause


@pytest.mark.parametrize(("failures", "seconds"), [(0, 1.0), (1, 2.0), (4, 16.0), (5, MAX_RETRY_SECONDS), (5_000, MAX_RETRY_SECONDS)])
def test_a_pause_grows_to_its_limit(failures: int, seconds: float) -> None:
    assert _pause(failures) == seconds
