"""`CausalOrdering` in the uses that its guide documents, in memory and on SQLite; each test covers an observed defect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import Context
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from headrace import CausalEvent, CausalOrdering, DeliveryPolicy, EventAlreadySeen, EventArrivedEarly, claimed_event

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = (NOW - EPOCH) // timedelta(microseconds=1)

    def __call__(self) -> int:
        return self.now

    def turn(self, time: timedelta) -> None:
        self.now += time // timedelta(microseconds=1)


class OddDelta(timedelta):
    """What a subclass of datetime may return when it is subtracted from: `//` is not what it was."""

    def __floordiv__(self, other: Any) -> Any:
        raise AttributeError("'OddDelta' object has no attribute '_to_microseconds'")


class OddDatetime(datetime):
    """As pendulum's: its differences are of a class of its own."""

    def __sub__(self, other: Any) -> Any:
        plain = datetime.__sub__(self, other)
        return OddDelta(days=plain.days, seconds=plain.seconds, microseconds=plain.microseconds) if isinstance(plain, timedelta) else plain


def event(id: str, follows: str | None = None, second: int = 0, **more: Any) -> CausalEvent:
    return CausalEvent(id=id, follows=follows, occurred=NOW + timedelta(seconds=second), payload={"id": id}, **more)


class Shared:
    """A scope that several orderings open, each with its own clock."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.store = None if kind == "memory" else f"sqlite:///{folder / 'ordering.db'}"
        self.opened: list[CausalOrdering] = []

    def open(self, clock: Clock, **options: Any) -> CausalOrdering:
        ordering = CausalOrdering("tests", self.store, clock=clock, **{"policy": DeliveryPolicy(max_attempts=3), **options})
        self.opened.append(ordering)
        return ordering


@pytest.fixture(params=["memory", "sqlite"])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shared]:
    made = Shared(request.param, tmp_path)
    yield made
    for ordering in made.opened:
        await ordering.close()


async def one_by_one(ordering: CausalOrdering, events: list[CausalEvent], handled: list[str]) -> None:
    async def handle(event: CausalEvent) -> None:
        async with ordering.preceding_event_confirmed(handle, event):
            handled.append(event.id)

    for one in events:
        await handle(one)


async def test_lost_followers_are_handled_through_preceding_event_confirmed(shared: Shared) -> None:
    clock, handled = Clock(), list[str]()
    ordering = shared.open(clock)
    await ordering.record_follower(event("b", "a"))
    await ordering.record_follower(event("c", "b"))
    clock.turn(timedelta(minutes=16))
    lost = await ordering.get_lost_followers()
    assert [(one.id, one.mark) for one in lost] == [("b", "lost")]
    await one_by_one(ordering, lost, handled)
    assert handled == ["b", "c"]
    assert await ordering.get_lost_followers() == []
    with pytest.raises(EventAlreadySeen):
        await one_by_one(ordering, lost, handled)


async def test_a_failed_follower_is_among_the_lost_followers_when_its_retry_is_due(shared: Shared) -> None:
    clock, failing = Clock(), {"b"}
    ordering = shared.open(clock)
    handled: list[str] = []

    async def handle(event: CausalEvent) -> None:
        async with ordering.preceding_event_confirmed(handle, event):
            if event.id in failing:
                raise ValueError(event.id)
            handled.append(event.id)

    with pytest.raises(EventArrivedEarly):
        await handle(event("b", "a"))
    await handle(event("a"))
    assert await ordering.get_lost_followers() == []
    clock.turn(timedelta(minutes=1))
    failing.clear()
    (again,) = await ordering.get_lost_followers()
    await handle(again)
    assert handled == ["a", "b"]


async def test_any_subclass_of_datetime_and_any_zone_is_accepted(shared: Shared) -> None:
    ordering = shared.open(Clock())
    odd = OddDatetime(2026, 1, 1, 2, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=2)))
    await ordering.record_follower(CausalEvent(id="b", follows="a", occurred=odd, received=odd))
    await ordering.record_follower(CausalEvent(id="c", follows="a", occurred=NOW))
    followers = await ordering.get_followers(CausalEvent(id="a", occurred=odd))
    assert [(one.id, one.occurred) for one in followers] == [("c", NOW), ("b", NOW + timedelta(milliseconds=250))]
    with pytest.raises(ValueError, match="no time zone"):
        await ordering.record_follower(CausalEvent(id="d", occurred=datetime(2026, 1, 1)))


@pytest.mark.parametrize("ahead", [timedelta(days=1), timedelta(seconds=30)])
async def test_a_clock_that_was_temporarily_ahead_delays_no_event(shared: Shared, ahead: timedelta) -> None:
    clock, handled = Clock(), list[str]()
    ordering = shared.open(clock, by_age=False)
    clock.turn(ahead)
    await ordering.offer([event("ready"), event("waits", "never")])
    assert [claim.event.id for claim in await ordering.claim(1)] == ["ready"]  # its claimer dies
    clock.turn(-ahead)

    async def handle(event: CausalEvent) -> None:
        handled.append(event.id)

    await ordering.offer([event("after")])
    await ordering.handle_ready(handle)
    assert handled == ["after"]
    clock.turn(timedelta(seconds=61))
    await ordering.handle_ready(handle)
    assert handled == ["after", "ready"]
    clock.turn(timedelta(minutes=15))
    await ordering.handle_ready(handle)
    assert handled == ["after", "ready", "waits"]


async def test_handled_events_are_pruned_by_age(shared: Shared) -> None:
    clock, handled = Clock(), list[str]()
    ordering = shared.open(clock, retention=timedelta(hours=1))
    await one_by_one(ordering, [event(f"{n}") for n in range(2_100)], handled)
    clock.turn(timedelta(minutes=59))
    await ordering.expire()
    assert await ordering.event_has_been_seen("0")
    clock.turn(timedelta(minutes=2))
    for _ in range(3):  # some at a time
        await ordering.expire()
        clock.turn(timedelta(minutes=1))
    assert not any([await ordering.event_has_been_seen(f"{n}") for n in range(0, 2_100, 100)])
    assert (await ordering.counts()).handled == 2_100


async def test_order_is_by_occurred_and_age_is_by_received(shared: Shared) -> None:
    clock = Clock()
    ordering = shared.open(clock)
    long_ago = NOW - timedelta(days=400)
    history = CausalEvent(id="b", follows="a", occurred=long_ago, received=NOW - timedelta(minutes=10))
    old = CausalEvent(id="d", follows="c", occurred=NOW, received=NOW - timedelta(minutes=15))
    assert await ordering.offer([history, old]) == ["waiting", "ready"]
    clock.turn(timedelta(minutes=5))
    assert [one.id for one in await ordering.get_lost_followers()] == ["d", "b"]


async def test_events_received_earlier_are_lost_earlier_in_any_offer_order(shared: Shared) -> None:
    clock = Clock()
    ordering = shared.open(clock)
    await ordering.record_follower(event("new", "x"))
    await ordering.record_follower(event("old", "y", received=NOW - timedelta(minutes=14)))
    clock.turn(timedelta(minutes=1))
    assert [one.id for one in await ordering.get_lost_followers()] == ["old"]


async def test_without_by_age_old_events_wait(shared: Shared) -> None:
    ordering = shared.open(Clock(), by_age=False)
    assert await ordering.offer([event("b", "a", second=-86_400)]) == ["waiting"]


async def test_claims_are_confirmed_released_and_failed_individually(shared: Shared) -> None:
    clock = Clock()
    ordering = shared.open(clock)
    await ordering.offer([event("a"), event("b", "a"), event("c"), event("d")])
    claims = {claimed_event(claim).id: claim for claim in await ordering.claim(9)}
    assert await ordering.confirm(claims["a"])
    assert not await ordering.confirm(claims["a"])
    await ordering.give_back(claims["c"])
    assert await ordering.fail(claims["d"], ValueError("bad"))
    assert [claimed_event(claim).id for claim in await ordering.claim(9)] == ["c"]
    clock.turn(timedelta(seconds=50))
    assert await ordering.renew([claims["b"], claims["a"]]) == [claims["b"]]
    clock.turn(timedelta(seconds=50))
    assert await ordering.confirm(claims["b"])
    assert [(claim.event.id, claim.attempts) for claim in await ordering.claim(9)] == [("c", 2), ("d", 2)]


async def test_an_event_recorded_as_seen_releases_its_followers(shared: Shared) -> None:
    ordering = shared.open(Clock())
    await ordering.record_follower(event("b", "a"))
    await ordering.record_event_as_seen(event("a"))
    assert await ordering.event_has_been_seen("a")
    assert [one.id for one in await ordering.get_followers(event("a"))] == ["b"]
    assert [one.id for one in await ordering.get_lost_followers()] == ["b"]
    await ordering.record_event_as_seen(event("b", "a"))
    assert await ordering.event_has_been_seen("b")
    assert await ordering.get_lost_followers() == []


@pytest.mark.parametrize("apart", [timedelta(0), timedelta(seconds=61), -timedelta(seconds=61)])
async def test_slow_handlers_with_different_clocks_handle_each_event_once(tmp_path: Path, apart: timedelta) -> None:
    """Two processes' orderings share a scope; each handler lasts longer than a lease by both clocks."""
    url = f"sqlite:///{tmp_path / 'ordering.db'}"
    clocks = [Clock(), Clock()]
    clocks[1].turn(apart)
    handled: list[str] = []
    first, second = (CausalOrdering("s", url, clock=clock) for clock in clocks)
    async with first, second:
        await first.offer([event(f"{n}", f"{n - 4}" if n > 3 else None) for n in range(24)])

        async def handle(event: CausalEvent) -> None:
            handled.append(event.id)
            for clock in clocks:
                clock.turn(timedelta(seconds=40))
            await asyncio.sleep(0)
            if len(handled) % 3 == 0:
                await second.get_lost_followers()

        async def all_of(ordering: CausalOrdering) -> None:
            while (await ordering.counts()).handled < 24:
                await ordering.handle_ready(handle)

        await asyncio.gather(all_of(first), all_of(second))
    assert sorted(handled, key=int) == [f"{n}" for n in range(24)]
    for n in range(4, 24):
        assert handled.index(f"{n - 4}") < handled.index(f"{n}")


async def test_an_event_in_a_long_body_is_not_claimed_by_another_process(tmp_path: Path) -> None:
    url, clock, late = f"sqlite:///{tmp_path / 'ordering.db'}", Clock(), Clock()
    late.turn(timedelta(seconds=61))
    others: list[str] = []

    async def other(event: CausalEvent) -> None:
        others.append(event.id)

    async with CausalOrdering("s", url, clock=clock) as first, CausalOrdering("s", url, clock=late) as second:
        for one in (event("a"), event("b", "a")):
            async with first.preceding_event_confirmed(other, one):
                assert await second.handle_ready(other) == 0
                with pytest.raises(EventAlreadySeen):  # in a context of its own: what a handler itself has in hand it may ask for
                    await asyncio.create_task(one_by_one(second, [one], others), context=Context())
                assert await second.offer([one]) in (["ready"], ["claimed"])
                assert await second.handle_ready(other) == 0
                late.turn(timedelta(hours=1))
                assert await second.claim(9) == []
            assert await first.event_has_been_seen(one)
        late.turn(timedelta(hours=1))
        assert await second.handle_ready(other) == 0
        assert others == []


async def test_a_cancelled_body_releases_its_event(shared: Shared) -> None:
    ordering, handled = shared.open(Clock()), list[str]()
    begun = asyncio.Event()

    async def handle(event: CausalEvent) -> None:
        async with ordering.preceding_event_confirmed(handle, event):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(handle(event("a")))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await one_by_one(ordering, [event("a")], handled)
    assert handled == ["a"]
