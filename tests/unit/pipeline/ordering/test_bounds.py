"""The bounds of the next batch of a scope, and the scope time."""

from __future__ import annotations

import pytest

from headrace.pipeline.ordering.bounds import MAX_REDELIVERIES, MAX_STEP, Bounds, Moment, next_bounds
from headrace.wire.custody.events import LogPosition

TICK = 1_000_000


def bounds(at: Moment, head: int, again: int = 0, *, now: int = 0, tick: int | None = TICK) -> Bounds | None:
    return next_bounds(at, LogPosition(head=head, last_redelivery_id=again), now, max_rows=10, tick=tick)


def at(seq: int, again: int = 0, wall: int = 0, clock: int = 0) -> Moment:
    return Moment(seq, again, wall, clock)


def test_a_batch_is_limited_in_events_and_redeliveries() -> None:
    assert bounds(at(0), 15, now=3) == Bounds(0, 10, 0, 0, 3, 3)
    assert bounds(at(10), 15, now=3) == Bounds(10, 15, 0, 0, 3, 3)
    assert bounds(at(15), 15, 2 * MAX_REDELIVERIES) == Bounds(15, 15, 0, MAX_REDELIVERIES, 0, 0)
    assert bounds(at(15, MAX_REDELIVERIES), 15, MAX_REDELIVERIES + 1) == Bounds(15, 15, MAX_REDELIVERIES, MAX_REDELIVERIES + 1, 0, 0)


def test_bounds_never_precede_the_cursor_of_the_scope() -> None:
    assert bounds(at(15, 7), 9, 3, tick=None) is None


def test_scope_time_follows_the_wall_clock_except_downtime() -> None:
    start = at(0, wall=1_000, clock=70)
    for now, clock in ((1_500, 570), (3_600_000_000, 70 + MAX_STEP), (0, 70)):
        found = bounds(start, 1, now=now)
        assert found is not None
        assert (found.wall, found.clock) == (now, clock)


@pytest.mark.parametrize(("now", "ticks"), [(TICK - 1, False), (TICK, True), (-1, True)])
def test_idle_scope_time_advances_only_if_something_waits(now: int, ticks: bool) -> None:
    assert bounds(at(1), 1, now=now, tick=None) is None
    assert (bounds(at(1), 1, now=now) is not None) is ticks


def test_a_wall_clock_that_is_set_back_stops_scope_time_for_one_tick() -> None:
    back = bounds(at(1, wall=3_600_000_000, clock=70), 1, now=1_000)
    assert back == Bounds(1, 1, 0, 0, 1_000, 70)
    again = bounds(at(1, wall=1_000, clock=70), 1, now=1_000 + TICK)
    assert again == Bounds(1, 1, 0, 0, 1_000 + TICK, 70 + TICK)
