"""`CausalOrdering` with a wall clock that is wrong, ahead or behind, temporarily or permanently."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.causal import ordering as causal
from headrace.causal.event import CausalEvent
from headrace.causal.memory_store import MemoryOrderingStore
from headrace.causal.ordering import CausalOrdering
from headrace.core.values.moments import moment
from headrace.store.ordering.standalone.store import StandaloneOrderingStore
from support.processes.postgres import database_of
from support.processes.store import SECOND, TurnedClock

WAIT = 900
HOUR = 3_600
DAY = 86_400
Open = Callable[..., CausalOrdering]


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def begin(request: pytest.FixtureRequest, tmp_path: Path, clock: TurnedClock) -> AsyncIterator[Open]:
    """Open the scope, as a process does when it begins."""
    urls = {"sqlite": lambda: f"sqlite:///{tmp_path / 'ordering.db'}", "postgresql": lambda: database_of(tmp_path, empty=True)}
    url = urls[request.param]() if request.param in urls else None
    async with AsyncExitStack() as stack:

        def open_(**options: Any) -> CausalOrdering:
            given: dict[str, Any] = {"by_age": False, "ticks": clock.ticks} | options
            home = MemoryOrderingStore(WAIT * SECOND, **given) if url is None else StandaloneOrderingStore(url, "s", WAIT * SECOND, **given)
            ordering = CausalOrdering("s", home, clock=clock)
            stack.push_async_callback(ordering.close)
            return ordering

        yield open_


def event(clock: TurnedClock, id: str, follows: str | None = None, **more: Any) -> CausalEvent:
    return CausalEvent(id=id, follows=follows, occurred=moment(clock.now), **more)


async def ignore(_: CausalEvent) -> None:
    """Handle an event by doing nothing."""


async def handled(ordering: CausalOrdering) -> list[tuple[str, str | None]]:
    done: list[tuple[str, str | None]] = []

    async def handle(event: CausalEvent) -> None:
        done.append((event.id, event.mark))

    await ordering.handle_ready(handle)
    return done


@pytest.mark.parametrize("wrong", [-HOUR, HOUR, 400 * DAY])
@pytest.mark.parametrize("right_again", [True, False])
async def test_a_wrong_clock_does_not_change_when_a_leader_is_given_up(
    begin: Open, clock: TurnedClock, wrong: int, right_again: bool
) -> None:
    ordering = begin()
    await ordering.offer([event(clock, "b", "a"), event(clock, "d", "c")])
    clock.turn(60)
    clock.set(wrong)
    assert await handled(ordering) == []
    await ordering.offer([event(clock, "f", "e")])
    clock.turn(60)
    assert await ordering.get_lost_followers() == []
    if right_again:
        clock.set(-wrong)
    await ordering.offer([event(clock, "h", "g")])
    await ordering.offer([event(clock, "a")])
    assert await handled(ordering) == [("a", None), ("b", None)]
    clock.turn(WAIT - 121)
    assert await handled(ordering) == []
    clock.turn(1)
    assert await handled(ordering) == [("d", "lost")]
    clock.turn(60)
    assert await handled(ordering) == [("f", "lost")]
    clock.turn(59)
    assert await handled(ordering) == []
    clock.turn(1)
    assert await handled(ordering) == [("h", "lost")]


@pytest.mark.parametrize("wrong", [-HOUR, HOUR])
async def test_the_age_of_an_event_is_measured_by_the_wall_clock(begin: Open, clock: TurnedClock, wrong: int) -> None:
    clock.set(wrong)
    ordering = begin(by_age=True)
    await ordering.offer([event(clock, "a")])
    clock.set(-wrong)
    await ordering.offer([event(clock, "new", "none")])
    old = TurnedClock(clock.now - (WAIT + 1) * SECOND)
    assert await handled(ordering) == [("a", None)]
    await ordering.offer([event(old, "old", "never")])
    assert await handled(ordering) == [("old", "lost")]
    await ordering.offer([event(clock, "received", "no", received=moment(clock.now - 600 * SECOND))])
    clock.turn(300)
    assert await handled(ordering) == [("received", "lost")]
    clock.turn(600)
    assert await handled(ordering) == [("new", "lost")]


async def test_handled_events_are_not_pruned_early(begin: Open, clock: TurnedClock) -> None:
    ordering = begin(retention=7 * DAY * SECOND)
    await ordering.offer([event(clock, "a"), event(clock, "b", "a")])
    assert len(await handled(ordering)) == 2
    async with ordering.preceding_event_confirmed(ignore, event(clock, "c")):
        pass
    clock.set(30 * DAY)
    clock.turn(61)
    await ordering.expire()
    clock.set(-30 * DAY)
    assert [await ordering.event_has_been_seen(id) for id in "abc"] == [True] * 3
    clock.turn(7 * DAY - 62)
    await ordering.expire()
    assert [await ordering.event_has_been_seen(id) for id in "abc"] == [True] * 3
    clock.turn(62)
    await ordering.expire()
    assert [await ordering.event_has_been_seen(id) for id in "abc"] == [False] * 3


@pytest.mark.parametrize("wrong", [-HOUR, HOUR])
async def test_waits_are_reported_in_wall_clock_time(begin: Open, clock: TurnedClock, wrong: int) -> None:
    ordering = begin()
    await ordering.offer([event(clock, "b", "a")])
    came = clock.now
    clock.turn(60)
    clock.set(wrong)
    await ordering.get_lost_followers()
    clock.set(-wrong)
    await ordering.get_lost_followers()
    assert [wait.since for wait in await ordering.waits()] == [came]


@pytest.mark.parametrize("wrong", [-HOUR, HOUR])
@pytest.mark.parametrize("begin", ["sqlite", "postgresql"], indirect=True)
async def test_a_wait_continues_in_the_next_process_despite_a_changed_clock(begin: Open, clock: TurnedClock, wrong: int) -> None:
    first = begin()
    await first.offer([event(clock, "b", "a")])
    clock.turn(60)
    clock.set(wrong)
    assert await first.get_lost_followers() == []
    clock.turn(60)
    second = begin()
    assert await handled(second) == []
    clock.turn(WAIT - 121)
    assert await handled(second) == []
    clock.turn(1)
    assert await handled(second) == [("b", "lost")]
    assert await handled(first) == []


@pytest.mark.parametrize("begin", ["sqlite", "postgresql"], indirect=True)
async def test_short_processes_give_leaders_up_in_time(begin: Open, clock: TurnedClock) -> None:
    await begin().offer([event(clock, "b", "a")])
    for _ in range(2):
        clock.turn(300)
        assert await handled(begin()) == []
    clock.turn(300)
    assert await handled(begin()) == [("b", "lost")]


@pytest.mark.parametrize("behind", [30, 7 * HOUR])
@pytest.mark.parametrize("begin", ["sqlite", "postgresql"], indirect=True)
async def test_processes_with_different_monotonic_clocks_agree(begin: Open, clock: TurnedClock, behind: int) -> None:
    slow = TurnedClock(clock.now, clock.passed)
    first, second = begin(), begin(ticks=slow.ticks)
    for ordering in (first, second):
        await ordering.offer([event(clock, f"of {ordering}")])
        assert len(await handled(ordering)) == 1
    slow.passed -= behind * SECOND
    for each in (clock, slow):
        each.turn(60)
    await first.offer([event(clock, "b", "a")])
    await second.offer([event(clock, "d", "c")])
    for each in (clock, slow):
        each.turn(WAIT - 1)
    assert await handled(second) == await handled(first) == []
    for each in (clock, slow):
        each.turn(1)
    assert await handled(second) == [("b", "lost"), ("d", "lost")]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_monotonic_clock_is_the_default(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, real = 0, time.time_ns

    def wall() -> int:
        return real() + ahead

    monkeypatch.setattr(time, "time_ns", wall)
    monkeypatch.setattr(causal, "time_ns", wall)
    store = None if kind == "memory" else f"sqlite:///{tmp_path / 'ordering.db'}"
    async with CausalOrdering("s", store, lookback=timedelta(minutes=15), by_age=False) as ordering:
        await ordering.offer([event(TurnedClock(), "b", "a")])
        ahead = HOUR * 1_000_000_000
        assert await handled(ordering) == []
        await ordering.offer([event(TurnedClock(), "a")])
        assert await handled(ordering) == [("a", None), ("b", None)]
