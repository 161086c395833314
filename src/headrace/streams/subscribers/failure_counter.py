"""What one trigger failed on, how often, and which raw events wait to be tried again."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import blake2b
from random import Random
from typing import Final, NamedTuple

from headrace.core.ledger.obligations import PendingBacklogEvent, PendingEvent
from headrace.streams.subscribers.raw_text import preview

MOST_TIMES: Final = 20
MAX_COUNTED: Final = 100
"""Raw events of one trigger whose failures are counted at once; beyond that the oldest count is forgotten."""
RETRY_FACTOR: Final = 5.0
"""Each wait before a retry is so many times as long as the one before."""


class Retry(NamedTuple):
    """One raw event that waits to be tried again, and its lane with it, until `due` by the clock of its stream."""

    lane: str
    position: int | None
    attempts: int
    due: float
    reason: str


class Failed(NamedTuple):
    """How often a trigger failed on one raw event, and when, the last times."""

    attempts: int
    times: tuple[datetime, ...]


_NEVER: Final = Failed(0, ())


class FailureCounter:
    """Counts the failures of one trigger on each raw event, the same after it went through the backlog.

    `retries` are the lanes that wait, by name; the reader of the backlog removes what is due.
    """

    def __init__(self) -> None:
        self._failed: dict[object, Failed] = {}
        self.retries: dict[str, Retry] = {}

    def count(self, entry: PendingEvent, delivery_id: str | None) -> Failed:
        """Count one more failure on `entry`; `delivery_id` names it where it has no position."""
        at = _identity(entry, delivery_id)
        attempts, times = self._failed.pop(at, _NEVER)
        failed = self._failed[at] = Failed(attempts + 1, (*times, datetime.now(UTC))[-MOST_TIMES:])
        if len(self._failed) > MAX_COUNTED:
            del self._failed[next(iter(self._failed))]
        return failed

    def forget(self, entry: PendingEvent, delivery_id: str | None) -> None:
        """Forget the failures on `entry`, which is given up on: redriven, it has all its attempts again."""
        self._failed.pop(_identity(entry, delivery_id), None)


def retry_wait(failures: int, max_attempts: int, longest: float, chance: Random) -> float:
    """Return the seconds before a raw event comes again after so many failures; 0: at once, when its trigger has started again.

    The last wait is up to `longest`, each one before a fifth of it. Half of it is random, so that what failed together comes apart.
    """
    if failures < 2:
        return 0.0
    ceiling = longest / RETRY_FACTOR ** (max_attempts - 1 - failures)
    return ceiling * (0.5 + chance.random() / 2)


def text_of(entry: PendingEvent) -> str:
    """Return the raw event as text."""
    return entry.payload if isinstance(entry, PendingBacklogEvent) and isinstance(entry.payload, str) else preview(entry.raw)


def _identity(entry: PendingEvent, delivery_id: str | None) -> object:
    return delivery_id or (entry.lane.name, entry.position, blake2b(text_of(entry).encode(errors="replace"), digest_size=16).digest())
