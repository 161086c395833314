"""`CausalOrdering` over a database: each transaction changes at most one slice, and a kill between two slices loses no event."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace import CausalEvent, CausalOrdering, DeliveryPolicy, EventArrivedEarly
from headrace.causal import ordering as causal
from headrace.store.ordering import releases
from headrace.store.ordering.standalone.store import StandaloneOrderingStore
from support.ordering.events import START, Event, caused
from support.ordering.release_process import SLICE
from support.ordering.transactions import Transactions
from support.processes.postgres import database_of
from support.processes.store import database_url

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FOLLOWERS = 150
MOST_CHANGED = 6 * SLICE
"""Rows of one transaction: an event, its index of what was handled, the journal and the scope are rows of their own."""

pytestmark = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


@pytest.fixture(autouse=True)
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "RELEASED_EVENTS", SLICE)


def url_of(kind: str, folder: Path) -> str:
    return database_url(kind, folder) if kind == "sqlite" else database_of(folder, empty=True)


def event(id: str, follows: str | None = None, second: int = 0) -> CausalEvent:
    return CausalEvent(id=id, follows=follows, occurred=NOW + timedelta(seconds=second))


class Consumer:
    """Handles events by one function, as a program does."""

    def __init__(self, ordering: CausalOrdering) -> None:
        self.ordering = ordering
        self.handled: list[str] = []

    async def handle(self, event: CausalEvent) -> None:
        async with self.ordering.preceding_event_confirmed(self.handle, event):
            self.handled.append(event.id)


async def test_the_task_of_a_leader_handles_all_of_its_followers(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with CausalOrdering("s", url_of(kind, tmp_path), by_age=False) as ordering:
        consumer = Consumer(ordering)
        await ordering.offer([event(f"f{n}", "leader", FOLLOWERS - n) for n in range(FOLLOWERS)])
        counted = Transactions(monkeypatch)
        await consumer.handle(event("leader"))
    assert consumer.handled == ["leader", *(f"f{n}" for n in reversed(range(FOLLOWERS)))]
    assert max(counted.changed) <= MOST_CHANGED, counted.changed


async def test_the_task_of_a_leader_handles_a_chain_of_followers(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with CausalOrdering("s", url_of(kind, tmp_path), by_age=False) as ordering:
        consumer = Consumer(ordering)
        await ordering.offer([event(f"{n}", f"{n - 1}") for n in range(FOLLOWERS, 0, -1)])
        counted = Transactions(monkeypatch)
        await consumer.handle(event("0"))
    assert consumer.handled == [f"{n}" for n in range(FOLLOWERS + 1)]
    assert max(counted.changed) <= MOST_CHANGED, counted.changed


async def test_two_concurrent_leaders_each_release_all_of_their_followers(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followers of the second wait behind those of the first, whose task stands still."""
    async with CausalOrdering("s", url_of(kind, tmp_path), by_age=False) as ordering:
        first, second = Consumer(ordering), Consumer(ordering)
        await ordering.offer([event(f"{leader}{n}", leader, n) for n in range(FOLLOWERS) for leader in "ab"])
        counted = Transactions(monkeypatch)
        await ordering.record_event_as_seen(event("a"))
        await second.handle(event("b"))
        assert second.handled == ["b", *(f"b{n}" for n in range(FOLLOWERS))]
        assert await ordering.handle_ready(first.handle) == FOLLOWERS
    assert max(counted.changed) <= MOST_CHANGED, counted.changed


@pytest.mark.parametrize("how", ["handle_ready", "get_lost_followers"])
async def test_all_followers_of_a_lost_leader_are_released(kind: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with CausalOrdering("s", url_of(kind, tmp_path), by_age=False, lookback=timedelta()) as ordering:
        consumer = Consumer(ordering)
        await ordering.offer([*(event(f"f{n}", "root", n) for n in range(FOLLOWERS)), event("root", "lost")])
        counted = Transactions(monkeypatch)
        if how == "handle_ready":
            await ordering.handle_ready(consumer.handle)
        while found := await ordering.get_lost_followers():
            for one in found:
                await consumer.handle(one)
    assert consumer.handled == ["root", *(f"f{n}" for n in range(FOLLOWERS))]
    assert max(counted.changed) <= MOST_CHANGED, counted.changed


async def test_many_events_are_offered_and_redriven_in_slices(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal, "OFFERED_EVENTS", SLICE)
    url = url_of(kind, tmp_path)
    async with CausalOrdering("s", url, by_age=False, policy=DeliveryPolicy(max_attempts=1)) as ordering:
        counted = Transactions(monkeypatch)
        events = [event(f"f{n}", "leader", n) for n in range(FOLLOWERS)]
        first = SLICE - 1  # and the leader
        states = await ordering.offer([*events, event("leader")])
        assert states == ["blocked"] * first + ["waiting"] * (FOLLOWERS - first) + ["ready"]
        consumer = Consumer(ordering)
        await consumer.handle(event("leader"))
        others = [event(f"bad{n}") for n in range(FOLLOWERS)]
        await ordering.offer(others)

        async def fail(_: CausalEvent) -> None:
            raise ValueError

        assert await ordering.handle_ready(fail) == 0
        assert await ordering.redrive() == FOLLOWERS
        assert await ordering.redrive() == 0
        assert await ordering.handle_ready(consumer.handle) == FOLLOWERS
    assert sorted(consumer.handled) == sorted(one.id for one in [event("leader"), *events, *others])
    assert max(counted.changed) <= MOST_CHANGED, counted.changed


async def test_a_long_cycle_is_released_in_slices(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with CausalOrdering("s", url_of(kind, tmp_path), by_age=False) as ordering:
        ring = [event(f"{n}", f"{(n + 1) % FOLLOWERS}", n) for n in range(FOLLOWERS)]
        await ordering.offer(ring[1:])
        consumer, counted = Consumer(ordering), Transactions(monkeypatch)
        await ordering.offer(ring[:1])
        assert await ordering.handle_ready(consumer.handle) == FOLLOWERS
    assert consumer.handled == [f"{n}" for n in range(FOLLOWERS)]
    assert max(counted.changed) <= MOST_CHANGED, counted.changed


async def test_waits_from_a_clock_in_the_future_are_corrected_in_slices(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, ahead = url_of(kind, tmp_path), 86_400_000_000
    home = StandaloneOrderingStore(url, "s", ahead, by_age=False)
    for number in range(FOLLOWERS):
        new = [caused(Event(f"f{number}", "leader", number)), caused(Event(f"r{number}", None, 0)), caused(Event(f"h{number}", None, 0))]
        home.offer([one._replace(body="null") for one in new], START + ahead)
    handled = home.claim(2 * FOLLOWERS, START + ahead)[:FOLLOWERS]
    assert home.settle(handled, START + ahead) == FOLLOWERS
    counted = Transactions(monkeypatch)
    home.offer([caused(Event("now", None, 0))], START)
    order = [claim.event.id for claim in home.claim(1, START)]
    assert order == ["now"], "the others are claimed, for as long as a lease"
    assert max(counted.changed) <= MOST_CHANGED, counted.changed
    assert len([one for one in counted.changed if one >= SLICE]) >= 3 * FOLLOWERS // SLICE
    assert len(home.claim(2 * FOLLOWERS, START + home.policy.lease)) == FOLLOWERS + 1
    home.close()


@pytest.mark.parametrize("slices", [pytest.param(0, marks=pytest.mark.slow), 4])
@pytest.mark.slow
async def test_a_kill_between_two_slices_loses_no_event(kind: str, slices: int, tmp_path: Path) -> None:
    url = url_of(kind, tmp_path)
    command = [sys.executable, "-m", "support.ordering.release_process", url, "own", f"{FOLLOWERS}", f"{slices}"]
    killed = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[2])
    assert await killed.wait() == -signal.SIGKILL
    async with CausalOrdering("killed", url, by_age=False, lookback=timedelta(hours=1)) as ordering:
        counts = await ordering.counts()
        assert (counts.handled, counts.waiting) == (1, FOLLOWERS + 1 - SLICE * (slices + 1)), "the leader is in the first slice"
        consumer = Consumer(ordering)
        with pytest.raises(EventArrivedEarly):
            await consumer.handle(event("late", "none"))
        assert await ordering.handle_ready(consumer.handle) == FOLLOWERS
    assert consumer.handled == [f"f{n}" for n in reversed(range(FOLLOWERS))], "in order of time, each once"
