"""What one trigger failed on last, and how often."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from headrace.core.obligation import Entry, Kept
from headrace.streams.rawtext import shown

MOST_TIMES: Final = 20


class Trouble:
    """Counts the failures of one trigger on one raw event, the same after it went through the backlog. Another raw event begins anew."""

    def __init__(self) -> None:
        self._at: tuple[str, int | None, str] | str | None = None
        self._count = 0
        self._times: tuple[datetime, ...] = ()

    @property
    def times(self) -> tuple[datetime, ...]:
        """When it failed, the last ones."""
        return self._times

    def count(self, entry: Entry, delivery_id: str | None) -> int:
        """Count one more failure on `entry`, and return how often it failed on it; where it has no position, `delivery_id` tells it."""
        at = delivery_id or (entry.lane.name, entry.position, text_of(entry))
        if at != self._at:
            self._at, self._count, self._times = at, 0, ()
        self._count += 1
        self._times = (*self._times, datetime.now(UTC))[-MOST_TIMES:]
        return self._count


def text_of(entry: Entry) -> str:
    """Return the raw event as text."""
    return entry.payload if isinstance(entry, Kept) and isinstance(entry.payload, str) else shown(entry.raw)
