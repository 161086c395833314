"""Log rejected requests without a line for each of them: senders are many, and some are hostile."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

import structlog

INTERVAL_SECONDS: Final = 10.0
"""Interval of the lines for one endpoint and status."""

log = structlog.get_logger(__name__)


class RejectionLog:
    """Logs the first rejection of each endpoint and status in an interval, with the number of those before it that were not logged."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._omitted: dict[tuple[str, int], tuple[float, int]] = {}

    def add(self, endpoint: str, status: int, reason: str) -> None:
        """Log a rejection, or count it."""
        now = self._clock()
        until, omitted = self._omitted.get((endpoint, status), (now, 0))
        if now < until:
            self._omitted[endpoint, status] = until, omitted + 1
            return
        self._omitted[endpoint, status] = now + INTERVAL_SECONDS, 0
        write = log.error if status >= 500 else log.warning
        write("request rejected", endpoint=endpoint, status=status, reason=reason[:500], omitted=omitted)
