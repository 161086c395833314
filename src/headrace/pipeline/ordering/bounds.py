"""Compute what the next batch of a scope takes from the log, and advance the scope time.

The scope time follows the wall clock, but by at most MAX_STEP a batch, so that neither downtime nor catching up makes
an event look lost. It stops while no event waits and none arrives.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.wire.custody.events import CLOCK_STEP, LogPosition

MAX_STEP: Final = int(CLOCK_STEP * 1_000_000)
"""Maximum advance of the scope time in one batch (µs)."""
MAX_REDELIVERIES: Final = 500
"""Maximum redeliveries in one batch."""


class Moment(NamedTuple):
    """The progress of a scope: the last event and redelivery read, and the wall clock and scope time then (µs)."""

    seq: int
    last_redelivery_id: int
    wall: int
    clock: int


class Bounds(NamedTuple):
    """The events with after < seq <= to, the redeliveries with again_after < id <= again_to, and both clocks at the end (µs)."""

    after: int
    to: int
    redelivery_after: int
    redelivery_to: int
    wall: int
    clock: int


def next_bounds(at: Moment, news: LogPosition, now: int, *, max_rows: int, tick: int | None) -> Bounds | None:
    """Return the bounds of the next batch, or None if there is nothing to do.

    `tick` is how long the scope time may stand still (µs), or None if nothing waits for it. If the wall clock was set
    back, the scope time continues from its own value.
    """
    to = min(max(news.head, at.seq), at.seq + max_rows)
    last_redelivery_id = min(max(news.last_redelivery_id, at.last_redelivery_id), at.last_redelivery_id + MAX_REDELIVERIES)
    if (to, last_redelivery_id) == (at.seq, at.last_redelivery_id) and (tick is None or 0 <= now - at.wall < tick):
        return None
    return Bounds(at.seq, to, at.last_redelivery_id, last_redelivery_id, now, at.clock + max(0, min(now - at.wall, MAX_STEP)))
