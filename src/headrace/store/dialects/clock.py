"""Clocks of the store, in microseconds since the epoch: this machine's, and the database's, which several hosts share."""

from __future__ import annotations

import time

from sqlalchemy import Connection, Engine, event

from headrace.store.dialects.postgresql import MOMENT

DRIFT = 50_000
"""Difference of the two clocks, in microseconds, above which this clock is set again.

It is about the duration of a begin.
"""


def wall_clock() -> int:
    """Return this machine's time in microseconds since the epoch."""
    return time.time_ns() // 1000


class DatabaseClock:
    """Return the database's time in microseconds without a query, because each writing transaction delivers it.

    Between two transactions, this machine's monotonic clock continues it, so that a change of this machine's
    time does not affect it.
    """

    def __init__(self, writer: Engine) -> None:
        self._ahead: int | None = None
        event.listen(writer, "begin", self._began)

    def __call__(self) -> int:
        """Return the database's time, or this machine's until the first transaction has begun."""
        return wall_clock() if self._ahead is None else time.monotonic_ns() // 1000 + self._ahead

    def _began(self, connection: Connection) -> None:
        ahead = int(connection.info[MOMENT]) - time.monotonic_ns() // 1000
        if self._ahead is None or abs(ahead - self._ahead) > DRIFT:
            self._ahead = ahead
