"""Bounds."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import UsageError
from headrace.streams.hub import SharedStreamManager


def test_bounds_must_make_sense() -> None:
    spill: Any = "spill"
    with pytest.raises(UsageError, match="overflow"):
        SharedStreamManager(overflow=spill)
    with pytest.raises(UsageError, match="max_outstanding"):
        SharedStreamManager(max_outstanding=0)
