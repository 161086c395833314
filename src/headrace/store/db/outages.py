"""Track whether the database accepts writes, according to the writer's last transactions."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.errors import StorageBusy, StorageFull

RECOVERY_SECONDS = 30.0
"""Seconds without a failed write after which a successful write ends an outage: small writes may succeed on a full disk."""


class Outage(NamedTuple):
    """An outage of writes since `since`, because of `reason`. `hint` says what to do."""

    since: datetime
    reason: str
    hint: str | None


class Outages:
    """The outage of one database. The writer's thread records it, and any thread can read it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._outage: Outage | None = None
        self._failed = 0.0
        self._recovery = 0.0
        self._succeeded_since = False

    def record_success(self) -> None:
        """Record a committed transaction."""
        self._succeeded_since = True

    def record_failure(self, error: Exception) -> None:
        """Record why a transaction failed. Only errors of the storage itself count."""
        if not isinstance(error, StorageFull | StorageBusy):
            return
        outage = self.current()
        since = datetime.now(UTC) if outage is None else outage.since
        self._outage = Outage(since, str(error), error.hint)
        self._failed = self._clock()
        self._recovery = RECOVERY_SECONDS if isinstance(error, StorageFull) else 0.0
        self._succeeded_since = False

    def current(self) -> Outage | None:
        """Return the outage, or None if the database accepts writes."""
        over = self._succeeded_since and self._clock() - self._failed >= self._recovery
        return None if over else self._outage
