"""What apis on one PostgreSQL database tell one another with each commit: whose it is, and whether bells are to ring."""

from __future__ import annotations

from collections.abc import Iterable

CHANNEL = "headrace"
_RINGS = "/rings"


def ringing(me: str) -> str:
    """Return the notice by which `me` lets the bells of others ring."""
    return me + _RINGS


def heard(notices: Iterable[str], me: str) -> tuple[bool, bool]:
    """Return whether others than `me` have committed, and whether any of them rang."""
    others = [notice for notice in notices if notice.removesuffix(_RINGS) != me]
    return bool(others), any(notice.endswith(_RINGS) for notice in others)
