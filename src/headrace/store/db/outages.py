"""Whether the database takes what is written to it, as the writer last found."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.errors import StorageBusy, StorageFull

RECOVERY_SECONDS = 30.0
"""A full disk is mended when a write has succeeded and none has failed for so long: small writes may succeed on a full disk."""


class Outage(NamedTuple):
    """Writes fail since `since`, for `reason`; `hint` says what to do."""

    since: datetime
    reason: str
    hint: str | None


class Outages:
    """The outage of one database. The writer's thread tells of it, any thread asks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._outage: Outage | None = None
        self._failed = 0.0
        self._recovery = 0.0
        self._succeeded_since = False

    def record_success(self) -> None:
        """Note that a transaction was committed."""
        self._succeeded_since = True

    def record_failure(self, error: Exception) -> None:
        """Note why a transaction was not committed; only errors of the storage itself count."""
        if not isinstance(error, StorageFull | StorageBusy):
            return
        outage = self.current()
        since = datetime.now(UTC) if outage is None else outage.since
        self._outage = Outage(since, str(error), error.hint)
        self._failed = self._clock()
        self._recovery = RECOVERY_SECONDS if isinstance(error, StorageFull) else 0.0
        self._succeeded_since = False

    def current(self) -> Outage | None:
        """Return the outage, or None if the database takes what is written."""
        over = self._succeeded_since and self._clock() - self._failed >= self._recovery
        return None if over else self._outage
