"""The contract of the ordering (nine points), over every store: memory, SQLite, PostgreSQL, and the kernel of pipelines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.causal.memory_store import MemoryOrderingStore
from headrace.core.ordering import causal_order as core_ordering
from headrace.core.ordering.delivery import DeliveryPolicy, waits_for
from headrace.ports.ordering_store import OrderingStore
from headrace.store.ordering import releases
from headrace.store.ordering import sql_store as store_ordering
from headrace.store.ordering.sql_store import SqlOrdering
from support.ordering.cases import CHAIN, a_leader_after_many_others, a_reversed_chain, followers_of_one_leader
from support.ordering.events import LEASE, LOOKBACK, POLICY, START, WIDE, Event, Handling, Home, SubscriberSet, caused, history, run, seeds
from support.ordering.stores import KernelHome, SqlScopes
from support.processes.postgres import database_of
from support.processes.store import database_url

HANDLING = ["memory", "sqlite", "postgresql"]
EVERY = [*HANDLING, "kernel"]

given_chance = given(st.randoms(use_true_random=False))
some = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def scopes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlScopes]:
    made = SqlScopes(tmp_path_factory.mktemp("ordering"))
    yield made
    made.close()


def handling(kind: str, scopes: SqlScopes, policy: DeliveryPolicy = POLICY, lookback: int = LOOKBACK) -> OrderingStore:
    return MemoryOrderingStore(lookback, policy=policy) if kind == "memory" else scopes.home(kind, policy, lookback)


def home(kind: str, scopes: SqlScopes, *, wide: bool = False) -> Home:
    lookback = WIDE if wide else LOOKBACK
    return KernelHome(lookback) if kind == "kernel" else Handling(handling(kind, scopes, lookback=lookback), most=5_000 if wide else 50)


@pytest.mark.parametrize("kind", EVERY)
@some
@given_chance
def test_each_event_of_any_history_is_handled_once_after_its_leader(kind: str, scopes: SqlScopes, chance: Random) -> None:
    run(home(kind, scopes), history(chance))


@pytest.mark.parametrize("dead", ["hold", "release"])
@pytest.mark.parametrize("kind", HANDLING)
@some
@given_chance
def test_failing_crashing_and_slow_workers_handle_any_history(kind: str, dead: str, scopes: SqlScopes, chance: Random) -> None:
    policy = replace(POLICY, dead="hold" if dead == "hold" else "release")
    SubscriberSet(handling(kind, scopes, policy), chance).run(history(chance))


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY)
def test_a_reversed_chain_of_100_000_events_is_released_in_order(kind: str, scopes: SqlScopes) -> None:
    # all of them on PostgreSQL take 15 s: the soak does that
    a_reversed_chain(home(kind, scopes, wide=True), CHAIN // 5 if kind == "postgresql" else CHAIN)


@pytest.mark.parametrize("kind", EVERY)
def test_10_000_followers_of_one_leader_are_released_in_order_of_time(kind: str, scopes: SqlScopes) -> None:
    followers_of_one_leader(home(kind, scopes, wide=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY)
def test_a_leader_after_50_000_other_events_releases_its_follower(kind: str, scopes: SqlScopes) -> None:
    a_leader_after_many_others(home(kind, scopes, wide=True))


@pytest.mark.parametrize("kind", HANDLING)
def test_a_failed_follower_blocks_only_its_own_followers(kind: str, scopes: SqlScopes) -> None:
    ordering = handling(kind, scopes)
    events = [Event("leader", None, 0), *(Event(f"f{n}", "leader", n) for n in range(5)), *(Event(f"g{n}", f"f{n}", 9) for n in range(5))]
    ordering.offer([caused(event) for event in events], START)
    now, handled = START, list[str]()
    for attempt in range(1, POLICY.max_attempts + 1):
        while claims := ordering.claim(50, now):
            stopped: set[bytes] = set()
            for claim in claims:
                if waits_for(claim, stopped):
                    ordering.give_back([claim], now)
                elif claim.event.id == "f2":
                    assert claim.attempts == attempt
                    assert ordering.fail(claim, now, "it is bad", POLICY.retry_at(attempt, now, 0))
                    stopped.add(claim.event.key)
                else:
                    handled.append(claim.event.id)
                    ordering.settle([claim], now)
        assert sorted(handled) == sorted(event.id for event in events if event.id not in {"f2", "g2"})
        assert [wait.event.id for wait in ordering.waits(9)] == ["g2"]
        now += POLICY.max_wait
    assert ordering.states([caused(events[3]).key]) == ["dead"]
    assert ordering.redrive(None, now) == 1
    again = ordering.claim(9, now)
    assert [claim.event.id for claim in again] == ["f2", "g2"]
    assert ordering.settle(again, now) == 2
    assert ordering.counts().handled == len(events)


@pytest.mark.parametrize("kind", HANDLING)
def test_an_expired_claim_goes_to_another_worker_and_cannot_be_settled(kind: str, scopes: SqlScopes) -> None:
    ordering = handling(kind, scopes)
    ordering.offer([caused(Event("a", None, 0)), caused(Event("b", "a", 0))], START)
    first = ordering.claim(9, START)
    assert [claim.event.id for claim in first] == ["a", "b"]
    assert ordering.claim(9, START) == []
    second = ordering.claim(9, START + POLICY.lease)
    assert [(claim.event.id, claim.attempts) for claim in second] == [("a", 2), ("b", 2)]
    assert ordering.settle(first, START + POLICY.lease) == 0
    assert ordering.settle(second, START + POLICY.lease) == 2


@pytest.mark.parametrize("ahead", [6_000_000, 86_400_000_000])
@pytest.mark.parametrize("kind", HANDLING)
def test_a_brief_clock_jump_does_not_prolong_leases_or_waits(kind: str, ahead: int, scopes: SqlScopes) -> None:
    ordering = handling(kind, scopes)
    ordering.offer([caused(event) for event in (Event("a", None, 0), Event("b", None, 0), Event("w", "never", ahead))], START + ahead)
    assert [claim.event.id for claim in ordering.claim(1, START + ahead)] == ["a"]
    (b,) = ordering.claim(1, START + ahead)
    assert ordering.fail(b, START + ahead, "bad", START + ahead + POLICY.max_wait)
    ordering.offer([caused(Event("c", None, 0))], START)
    assert ordering.next_due(START) is not None
    assert {claim.event.id for claim in ordering.claim(9, START)} >= {"c"}
    assert {claim.event.id for claim in ordering.claim(9, START + LEASE)} >= {"a"}, "a lease lasts no longer than a lease"
    assert ordering.expire(START + LOOKBACK) == 1
    assert {"w"} <= {claim.event.id for claim in ordering.claim(9, START + LOOKBACK)}


@pytest.mark.parametrize("kind", HANDLING)
def test_the_next_due_time_is_corrected_after_a_clock_jump(kind: str, scopes: SqlScopes) -> None:
    ordering = handling(kind, scopes)
    ordering.offer([caused(Event("w", "never", 86_400_000_000))], START + 86_400_000_000)
    assert ordering.next_due(START) in {START, START + LOOKBACK}
    assert ordering.expire(START) == 0
    assert ordering.next_due(START) == START + LOOKBACK
    assert ordering.expire(START + LOOKBACK) == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_number_of_lost_leaders_is_bounded_and_equal_in_every_copy(
    kind: str, scopes: SqlScopes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_ordering, "GIVEN_UP_LIMIT", 4)
    ordering = scopes.home(kind, POLICY, LOOKBACK)
    for n in range(7):
        ordering.offer([caused(Event(f"f{n}", f"l{n}", n))], START + n)
    ordering.expire(START + LOOKBACK + 1)  # l0 and l1
    ordering.expire(START + LOOKBACK + 6)
    other = scopes.copy_of(kind, ordering)
    now = START + LOOKBACK + 7
    for n, home in ((0, ordering), (1, other), (5, ordering), (6, other)):
        home.offer([caused(Event(f"l{n}", None, 0))], now)
    assert {claim.event.id: claim.mark for claim in other.claim(99, now) if claim.event.id[0] == "l"} == {
        "l0": None,
        "l1": None,
        "l5": "late",
        "l6": "late",
    }
    month = core_ordering.GIVEN_UP_MICROS
    ordering.offer([caused(Event("f8", "l8", month))], now + month)
    ordering.expire(now + month + LOOKBACK)
    other.offer([caused(Event("l4", None, 0))], now + month + LOOKBACK)
    assert {claim.event.id: claim.mark for claim in other.claim(99, now + month + LOOKBACK)}["l4"] is None
    assert scopes.given_up(kind, ordering) == {bytes(caused(Event("l8", None, 0)).key)}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_many_lost_followers_are_released_in_slices_in_every_copy(kind: str, scopes: SqlScopes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_ordering, "EXPIRED_EVENTS", 10)
    ordering = scopes.home(kind, POLICY, WIDE)
    other = scopes.copy_of(kind, ordering)
    other.offer([], START)  # it has a copy of its own, and does again what is done here
    roots = [caused(Event(f"r{n:02}", f"l{n}", 100 - n)) for n in range(95)]
    ordering.offer([*roots, *(caused(Event(f"f{n:02}", f"r{n:02}", 0)) for n in range(95))], START)
    assert ordering.expire_some(START + WIDE) == 10
    assert other.expire_some(START + WIDE) == 10
    assert ordering.expire(START + WIDE) == 75
    assert other.counts().lost == 95
    claims = Handling(other, most=1_000).step([], START + WIDE)
    place = {one.id: one.position for one in claims}
    assert len({one.position for one in claims}) == 190
    assert all(place[f"r{n:02}"] < place[f"f{n:02}"] for n in range(95))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_many_blocked_followers_become_ready_in_slices_in_any_process(
    kind: str, scopes: SqlScopes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "RELEASED_EVENTS", 10)
    ordering = scopes.home(kind, POLICY, WIDE)
    other = scopes.copy_of(kind, ordering)
    followers = [Event(f"f{n:02}", "leader", 95 - n) for n in range(95)]
    below = [Event(f"g{n:02}", f"f{n:02}", 0) for n in range(95)]
    ordering.offer([caused(event) for event in (*followers, *below)], START)
    ordering.offer([caused(Event("leader", None, 0))], START)
    while ordering.release_some(START):
        pass
    assert ordering.settle(ordering.claim(1, START), START) == 1
    counts = ordering.counts()
    assert (counts.handled, counts.ready, counts.blocked) == (1, 10, 85 + 95), "one slice"
    assert other.next_due(START) == START
    handled: list[str] = []
    while claims := other.claim(6, START):
        handled += [claim.event.id for claim in claims]
        assert other.settle(claims, START) == len(claims)
    assert [id for id in handled if id[0] == "f"] == [f"f{n:02}" for n in reversed(range(95))]
    assert len(handled) == len(set(handled)) == 2 * 95
    assert all(handled.index(event.id) > handled.index(f"f{event.id[1:]}") for event in below)
    assert other.next_due(START) is None


PLANS = [("sqlite", None), ("postgresql", None), ("postgresql", "enable_indexscan"), ("postgresql", "enable_bitmapscan")]


@pytest.mark.parametrize(("kind", "without"), PLANS)
def test_a_claim_includes_the_first_followers_with_any_query_plan(kind: str, without: str | None, scopes: SqlScopes) -> None:
    ordering = scopes.home(kind, POLICY, WIDE)
    ordering.offer([caused(Event(f"f{n:02}", "leader", 95 - n)) for n in range(95)], START)
    ordering.offer([caused(Event("leader", None, 0))], START)
    for claim in reversed(ordering.claim(96, START)):
        ordering.give_back([claim], START)  # PostgreSQL stores the rows anew, in this order
    claims = scopes.copy_of(kind, ordering, without=without).claim(6, START)
    assert [claim.event.id for claim in claims] == ["leader", "f94", "f93", "f92", "f91", "f90"]


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_any_history_is_handled_once_with_releases_in_slices(
    kind: str, limit: int, scopes: SqlScopes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "RELEASED_EVENTS", limit)
    for _, chance in seeds(limit, 8):
        run(Handling(scopes.home(kind, POLICY, LOOKBACK)), history(chance, most=25))
        SubscriberSet(scopes.home(kind, POLICY, LOOKBACK), chance).run(history(chance))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_tree_is_released_in_slices_by_every_copy(kind: str, scopes: SqlScopes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "RELEASED_EVENTS", 10)
    ordering = scopes.home(kind, POLICY, LOOKBACK)
    followers = [Event(f"f{n:02}", "leader", 45 - n) for n in range(45)]
    below = [Event(f"g{n:02}", f"f{n:02}", 0) for n in range(45)]
    ordering.offer([caused(event) for event in (*below, *followers)], START)
    other = scopes.copy_of(kind, ordering)
    other.offer([], START)  # it has a copy of its own, and does again what is done here
    now = START + LOOKBACK - 1
    ordering.offer([caused(Event("leader", None, 0))], now)
    assert ordering.counts().waiting == 81, "the leader is in the first slice"
    assert ordering.settle(ordering.claim(1, now), now) == 1
    late = scopes.copy_of(kind, ordering)  # it begins in the middle, from the rows
    now += LOOKBACK
    assert [home.expire(now) for home in (ordering, other, late)] == [0, 0, 0], "what is to be released is not lost"
    assert [home.release_some(now) for home in (other, late, ordering, other)] == [True] * 4
    assert ordering.counts().waiting == 41
    assert late.next_due(now) is not None
    handled: list[str] = []
    while claims := late.claim(50, now) or other.claim(50, now):
        handled += [claim.event.id for claim in claims]
        assert late.settle(claims, now) == len(claims)
    assert [id for id in handled if id[0] == "f"] == [f"f{n:02}" for n in reversed(range(45))]
    assert len(handled) == len(set(handled)) == 90
    assert (ordering.counts().waiting, ordering.counts().lost, ordering.next_due(now)) == (0, 0, None)


class EachAnother:
    """A home of which each call is that of another process, which has no copy."""

    def __init__(self, kind: str, scopes: SqlScopes, home: SqlOrdering) -> None:
        self._kind, self._scopes, self._home = kind, scopes, home

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scopes.copy_of(self._kind, self._home), name)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_any_history_is_handled_once_with_each_slice_in_another_process(
    kind: str, scopes: SqlScopes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "RELEASED_EVENTS", 2)
    for _, chance in seeds(100, 5):
        home: Any = EachAnother(kind, scopes, scopes.home(kind, POLICY, LOOKBACK))
        run(Handling(home), history(chance, most=12))


def a_cycle(size: int) -> list[Event]:
    """Return events that follow one another in a ring, with one below each; the last event closes the cycle."""
    chance = Random(size)
    ring = [Event(f"c{n:02}", f"c{(n + 1) % size:02}", chance.randrange(size)) for n in range(size)]
    below = [Event(f"b{n:02}", f"c{n:02}", chance.randrange(size)) for n in range(size)]
    first = [*ring[1:], *below]
    chance.shuffle(first)
    return [*first, ring[0]]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_cycle_is_released_in_slices_in_the_order_of_one_transaction(
    kind: str, scopes: SqlScopes, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = a_cycle(45)
    memory = Handling(MemoryOrderingStore(LOOKBACK, policy=POLICY)).step(events, START)
    monkeypatch.setattr(releases, "RELEASED_EVENTS", 10)
    ordering = scopes.home(kind, POLICY, LOOKBACK)
    ordering.offer([caused(event) for event in events[:-1]], START)
    other = scopes.copy_of(kind, ordering)
    other.offer([], START)  # it has a copy of its own, and does again what is done here
    ordering.offer([caused(events[-1])], START)
    assert (ordering.counts().waiting, ordering.counts().ready, ordering.counts().cycles) == (80, 10, 1)
    handled = [claim for claim in other.claim(50, START) if other.settle([claim], START)]
    assert len(handled) == 10, "the first slice is handled before the next is released"
    late = START + LOOKBACK
    for home in (scopes.copy_of(kind, ordering), other, scopes.copy_of(kind, ordering)):
        assert home.expire(late) == 0, "what is to be released is not lost"
        assert home.release_some(late)
        assert home.next_due(late) is not None
    handled += [claim for claims in iter(lambda: ordering.claim(7, late), []) for claim in claims if ordering.settle([claim], late)]
    handled.sort(key=lambda claim: claim.position)
    expected = sorted(memory, key=lambda one: one.position)
    assert [(claim.event.id, claim.mark) for claim in handled] == [(one.id, one.mark) for one in expected]
    assert (ordering.counts().waiting, ordering.counts().lost, ordering.next_due(late)) == (0, 0, None)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_waits_after_a_clock_jump_are_corrected_in_slices_in_every_copy(
    kind: str, scopes: SqlScopes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 86_400_000_000
    monkeypatch.setattr(releases, "RELEASED_EVENTS", 10)
    policy = replace(POLICY, max_attempts=9)
    ordering = scopes.home(kind, policy, LOOKBACK)
    other = scopes.copy_of(kind, ordering)
    ordering.offer([caused(Event(f"w{n:02}", f"never{n}", n + ahead)) for n in range(35)], START + ahead)
    ordering.offer([caused(Event(f"r{n:02}", None, 100 - n)) for n in range(35)], START + ahead)
    claims = ordering.claim(30, START + ahead)
    for claim in claims[:20]:
        ordering.fail(claim, START + ahead, "bad", START + ahead + claim.position % 7)
    ordering.offer([caused(Event("gone", "lost", ahead))], START + ahead)
    assert ordering.expire(START + ahead + LOOKBACK) == 36
    ordering.offer([caused(Event(f"x{n:02}", f"never{n}-", n + 1 + ahead)) for n in range(35)], START + ahead)
    other.offer([caused(Event("now", None, 0))], START)
    assert other.next_due(START) == START, "there is more to set back"
    scopes.copy_of(kind, ordering).offer([caused(Event("young", "none", 0))], START + 5)  # a copy built in the middle, from the rows
    first = other.claim(99, START + 6)
    turned = [f"r{n:02}" for n in range(20)] + [f"r{n:02}" for n in range(30, 35)]
    assert [claim.event.id for claim in first if claim.event.id[0] == "r"] == turned, "in order of position"
    assert {claim.event.id for claim in first} == {*turned, *(f"w{n:02}" for n in range(35)), "gone", "now"}
    assert other.settle(first, START + 6) == len(first)
    assert other.next_due(START + 6) == START + LEASE, "leases are no longer than leases"
    again = other.claim(99, START + LEASE)
    assert [claim.event.id for claim in again] == [f"r{n:02}" for n in range(20, 30)]
    assert other.settle(again, START + LEASE) == 10
    assert scopes.copy_of(kind, ordering).expire(START + LOOKBACK) == 35
    assert {wait.event.id: wait.since for wait in other.waits(9)} == {"young": START + 5}
    assert other.expire(START + LOOKBACK + 5) == 1


@pytest.mark.parametrize("kind", HANDLING)
def test_events_older_than_the_lookback_do_not_wait_and_their_leader_is_late(kind: str, scopes: SqlScopes) -> None:
    whole = Handling(handling(kind, scopes))
    old = whole.step([Event("follower", "leader", -LOOKBACK)], START)
    assert [(one.id, one.mark) for one in old] == [("follower", "lost")]
    assert [(one.id, one.mark) for one in whole.step([Event("leader", None, 0)], START)] == [("leader", "late")]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "kernel"])
def test_old_events_of_the_log_wait_at_most_the_lookback(kind: str, scopes: SqlScopes) -> None:
    """The log remembers every leader: one that is not there has not come, and may be the next."""
    whole: Home = KernelHome(LOOKBACK) if kind == "kernel" else Handling(scopes.home(kind, POLICY, LOOKBACK, by_age=False))
    assert whole.step([Event("follower", "leader", -5 * LOOKBACK), Event("orphan", "nobody", -5 * LOOKBACK)], START) == []
    handled = whole.step([Event("leader", None, -6 * LOOKBACK)], START + 1)
    assert [(one.id, one.mark) for one in handled] == [("leader", None), ("follower", None)]
    assert [(one.id, one.mark) for one in whole.step([], START + LOOKBACK)] == [("orphan", "lost")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_processes_share_a_scope(kind: str, tmp_path: Path) -> None:
    """Both offer half of the chains' events and handle whatever is ready: each event once in all, leaders before followers."""
    url = database_url(kind, tmp_path) if kind == "sqlite" else database_of(tmp_path, empty=True)
    chains, depth = 60, 10
    command = [sys.executable, "-m", "support.ordering.process", url, str(chains), str(depth)]
    tests = Path(__file__).parents[1]
    processes = [subprocess.Popen([*command, half], cwd=tests, stdout=subprocess.PIPE, text=True) for half in ("0", "1")]
    told = [process.communicate(timeout=100)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert all(told), "one of them handled nothing"
    handled = [*told[0], *told[1]]
    assert len(handled) == len(set(handled)) == chains * depth
    moments = {name: int(moment) for name, _, moment in (one.partition("@") for one in handled)}
    for chain in range(chains):
        times = [moments[f"{chain}-{place}"] for place in range(depth)]
        assert times == sorted(times)
