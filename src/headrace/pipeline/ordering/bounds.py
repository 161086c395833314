"""What the next batch of a scope takes from the log, and the scope's clock.

The clock goes forward with the wall clock, but by at most MAX_STEP a batch, so that neither downtime nor catching up makes an event look
lost. It stands still while nothing waits and nothing comes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.wire.custody.events import CLOCK_STEP, LogNews

MAX_STEP: Final = int(CLOCK_STEP * 1_000_000)
"""The most that the scope's clock goes forward in one batch (µs)."""
MAX_REDELIVERIES: Final = 500
"""The most redeliveries that a batch takes."""


class Moment(NamedTuple):
    """How far a scope is: the last event and the last redelivery read, the wall clock at that moment and the scope's clock (µs)."""

    seq: int
    again: int
    wall: int
    clock: int


class Bounds(NamedTuple):
    """The events with after < seq <= to, the redeliveries with again_after < id <= again_to, and both clocks at the end (µs)."""

    after: int
    to: int
    again_after: int
    again_to: int
    wall: int
    clock: int


def next_bounds(at: Moment, news: LogNews, now: int, *, max_rows: int, tick: int | None) -> Bounds | None:
    """Return the bounds of the next batch, None where there is nothing to do.

    `tick` is the longest that the clock may stand still (µs), None where nothing waits for it. A wall clock that was set back is taken
    as it is: the scope's clock goes on from there.
    """
    to = min(max(news.head, at.seq), at.seq + max_rows)
    again = min(max(news.again, at.again), at.again + MAX_REDELIVERIES)
    if (to, again) == (at.seq, at.again) and (tick is None or 0 <= now - at.wall < tick):
        return None
    return Bounds(at.seq, to, at.again, again, now, at.clock + max(0, min(now - at.wall, MAX_STEP)))
