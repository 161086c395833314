"""Which moments every part can keep and show: the years 1 to 9999 in UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def in_range(moment: datetime) -> bool:
    """Return whether an aware `moment` has a year in UTC: `9999-12-31T23:59:59-05:00` has none."""
    try:
        moment.astimezone(UTC)
    except (OverflowError, ValueError):
        return False
    return True
