"""Notifications between API servers on one PostgreSQL database with each commit: its sender, and whether it is a commit signal."""

from __future__ import annotations

from collections.abc import Iterable

CHANNEL = "headrace"
_SIGNAL = "/signal"


def signal_payload(me: str) -> str:
    """Return the notification by which `me` sends a commit signal to the others."""
    return me + _SIGNAL


def parse_notifications(notices: Iterable[str], me: str) -> tuple[bool, bool]:
    """Return whether API servers other than `me` have committed, and whether any of them sent a commit signal."""
    others = [notice for notice in notices if notice.removesuffix(_SIGNAL) != me]
    return bool(others), any(notice.endswith(_SIGNAL) for notice in others)
