"""Failures of one trigger by raw event, and the raw events that wait for a retry."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import blake2b
from random import Random
from typing import Final, NamedTuple

from headrace.core.ledger.obligations import PendingBacklogEvent, PendingEvent
from headrace.streams.subscribers.raw_id import dead_letter_origin_id
from headrace.streams.subscribers.raw_text import preview

MAX_TIMES: Final = 20
MAX_COUNTED: Final = 100
"""Raw events of one trigger whose failures are counted. Beyond that the oldest count is dropped."""
RETRY_FACTOR: Final = 5.0
"""Factor from one retry wait to the next."""


class Retry(NamedTuple):
    """One raw event that waits for a retry, and its lane with it, until `due` by the clock of its stream."""

    lane: str
    position: int | None
    attempts: int
    due: float
    reason: str


class Failed(NamedTuple):
    """The number of failures of a trigger on one raw event, and the times of the last ones."""

    attempts: int
    times: tuple[datetime, ...]


_NEVER: Final = Failed(0, ())


class FailureCounter:
    """Counts the failures of one trigger by raw event, also across a stay in the backlog.

    `retries` are the lanes that wait, by name. The backlog reader removes the ones that are due.
    """

    def __init__(self) -> None:
        self._failed: dict[object, Failed] = {}
        self.retries: dict[str, Retry] = {}

    def count(self, entry: PendingEvent) -> Failed:
        """Count one more failure on `entry`."""
        at = _identity(entry)
        attempts, times = self._failed.pop(at, _NEVER)
        failed = self._failed[at] = Failed(attempts + 1, (*times, datetime.now(UTC))[-MAX_TIMES:])
        if len(self._failed) > MAX_COUNTED:
            del self._failed[next(iter(self._failed))]
        return failed

    def reset(self, entry: PendingEvent) -> None:
        """Drop the failures on `entry`, which becomes a dead letter: if it is redriven, it has all its attempts again."""
        self._failed.pop(_identity(entry), None)


def retry_wait(failures: int, max_attempts: int, max_wait: float, random: Random) -> float:
    """Return the seconds before the retry of a raw event. 0 means as soon as its trigger has started again.

    The last wait is up to `max_wait`, and each earlier one is a fifth of the next. Half of it is random, to spread simultaneous failures.
    """
    if failures < 2:
        return 0.0
    ceiling = max_wait / RETRY_FACTOR ** (max_attempts - 1 - failures)
    return ceiling * (0.5 + random.random() / 2)


def text_of(entry: PendingEvent) -> str:
    """Return the raw event as text."""
    return entry.payload if isinstance(entry, PendingBacklogEvent) and isinstance(entry.payload, str) else preview(entry.raw)


def _identity(entry: PendingEvent) -> object:
    digest = blake2b(text_of(entry).encode(errors="replace"), digest_size=16).digest()
    return dead_letter_origin_id(entry) or (entry.lane.name, entry.position, digest)
