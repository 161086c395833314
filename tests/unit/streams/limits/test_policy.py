"""Limits of a shared stream manager."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import UsageError
from headrace.streams.manager import SharedStreamManager


def test_invalid_limits_are_rejected() -> None:
    unknown: Any = "explode"
    with pytest.raises(UsageError, match="overflow"):
        SharedStreamManager(overflow=unknown)
    with pytest.raises(UsageError, match="spilled without a sink"):
        SharedStreamManager(overflow="spill")
    with pytest.raises(UsageError, match="max_outstanding"):
        SharedStreamManager(max_outstanding=0)
