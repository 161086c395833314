"""The contract of one event for many waiting runs: each run gets it once, in any number of transactions and after crashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event as on
from sqlalchemy import func, select

from headrace.store import Store
from headrace.store.db import slices
from headrace.store.tables.ordering import ordering_events
from headrace.store.tables.task_runs import run_events, task_runs
from headrace.store.task_runs import event_waits, wait_terms
from headrace.store.task_runs.event_waits import EventWaits
from headrace.store.task_runs.sweep import BATCH_STEPS
from headrace.store.task_runs.wait_terms import Wait, WaitIndex
from headrace.wire.task_runs import AwaitedEvent, ClaimedRun, ClaimRuns, DeferRun, StartRun, WaitCondition
from support.processes.store import Holder, TurnedClock, event, holder, registration

MANY = 2 * BATCH_STEPS + 5


class Died(Exception):
    """The api dies here."""


@pytest.fixture
def owner(store: Store) -> Holder:
    return holder(store, "legs")


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_waits, "MAX_EXAMINED_RUNS", 7)


def wait_for(store: Store, run_id: str, text: str = "", **fields: Any) -> None:
    waiting = WaitCondition(event=AwaitedEvent(on=["legs"], **fields), kwargs=f'{{"text":"{text}"}}')
    store.task_runs.start("flights", StartRun(run_id=run_id, task="t", waiting=waiting))


def taken(awaited: EventWaits) -> Any:
    found = awaited.take()
    assert found is not None
    return found.claims


def steps(store: Store) -> list[int]:
    """Return a list that gets, with each commit of the writer, how many runs it let go on."""
    engine, found = store._database._writer._engine, [0]

    @on.listens_for(engine, "after_cursor_execute")
    def note(_connection: object, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE task_runs"):
            found[-1] += cursor.rowcount

    @on.listens_for(engine, "commit")
    def commit(_connection: object) -> None:
        found.append(0)

    return found


def had(store: Store) -> dict[str, int]:
    """Return how many events each run was given."""
    with store.reading() as connection:
        return {row[0]: row[1] for row in connection.execute(select(run_events.c.run_id, func.count()).group_by(run_events.c.run_id))}


def scheduled(store: Store) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).where(task_runs.c.state == "scheduled")).scalar_one())


def open_events(store: Store) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(ordering_events)).scalar_one())


def stopping_after(transactions: int) -> Callable[[], bool]:
    left = iter([True] * transactions)
    return lambda: next(left, False)


def test_runs_that_wait_for_one_event_resume_in_slices(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_waits, "MAX_EXAMINED_RUNS", 500)
    for n in range(MANY):
        wait_for(store, f"r{n:03}")
    owner.append(event("a", *owner.epochs.keys()))
    claims, seen = taken(store.event_waits), steps(store)
    assert store.event_waits.deliver(claims) == MANY
    assert [count for count in seen if count] == [BATCH_STEPS, BATCH_STEPS, 5]
    assert (scheduled(store), open_events(store)) == (MANY, 0)


def test_slices_of_runs_with_large_arguments_are_bounded_in_bytes(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "MAX_SLICE_BYTES", 25_000)
    for n in range(5):
        wait_for(store, f"r{n}", "x" * 10_000)
    owner.append(event("a", *owner.epochs.keys()))
    claims, seen = taken(store.event_waits), steps(store)
    assert store.event_waits.deliver(claims) == 5
    assert [count for count in seen if count] == [2, 2, 1]


def test_events_with_one_waiting_run_each_share_transactions(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_waits, "MAX_EXAMINED_RUNS", 500)
    for n in range(MANY):
        wait_for(store, f"r{n:03}", id=f"e{n}")
    owner.append(*(event(f"e{n}", *owner.epochs.keys(), follows=f"e{n - 1}" if n else None) for n in range(MANY)))
    claims, seen = taken(store.event_waits), steps(store)
    assert store.event_waits.deliver(claims) == MANY
    assert [count for count in seen if count] == [BATCH_STEPS, BATCH_STEPS, 5]


def test_runs_that_do_not_match_are_examined_in_slices(store: Store, owner: Holder) -> None:
    for n in range(50):
        wait_for(store, f"other{n}", type="never")
    wait_for(store, "mine")
    owner.append(event("a", *owner.epochs.keys()))
    claims, seen = taken(store.event_waits), steps(store)
    assert store.event_waits.deliver(claims) == 1
    assert len(seen) - 1 >= 51 // 7
    assert (had(store), open_events(store)) == ({"mine": 1}, 0)


@pytest.mark.parametrize("transactions", range(1, 6))
@pytest.mark.slow
def test_a_crash_between_two_slices_neither_loses_nor_repeats_an_event(
    store: Store, owner: Holder, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch, transactions: int
) -> None:
    wait_for(store, "still-waits", id="never")
    for n in range(35):
        wait_for(store, f"r{n:02}")
    owner.append(event("a", *owner.epochs.keys()))

    def die() -> bool:
        if not proceed():
            raise Died
        return True

    proceed = stopping_after(transactions)
    with pytest.raises(Died):
        store.event_waits.deliver(taken(store.event_waits), die)
    done = scheduled(store)
    assert done == 7 * transactions
    other = EventWaits(store._database, store.task_runs.commit_signal, store.ages)
    assert taken(other) == [], "its lease is not over"
    clock.turn(31)
    assert other.deliver(taken(other)) == 35 - done
    assert (had(store), open_events(store)) == ({f"r{n:02}": 1 for n in range(35)}, 0)


def test_an_api_server_that_stops_releases_its_remaining_claims(store: Store, owner: Holder) -> None:
    for n in range(35):
        wait_for(store, f"r{n:02}")
    owner.append(event("a", *owner.epochs.keys()), event("b", *owner.epochs.keys(), follows="a"))
    assert store.event_waits.deliver(taken(store.event_waits), stopping_after(2)) == 14
    other = EventWaits(store._database, store.task_runs.commit_signal, store.ages)
    claims = taken(other)
    assert [claim.attempts for claim in claims] == [1, 1]
    assert other.deliver(claims) == 21
    assert (set(had(store).values()), len(had(store)), open_events(store)) == ({1}, 35, 0)


def test_runs_that_begin_to_wait_between_two_slices_get_the_event_once(store: Store, owner: Holder) -> None:
    """One is new, and its id comes before all; one had the event already and waits again."""
    worker = store.jobs.register(registration("worker")).id

    def claim() -> dict[str, ClaimedRun]:
        return {run.run_id: run for run in store.task_runs.claim(worker, ClaimRuns(capacity=99, tasks=["t"])).runs}

    def defer(run: ClaimedRun) -> str:
        waiting = WaitCondition(event=AwaitedEvent(on=["legs"]))
        return store.task_runs.defer(worker, run.run_id, DeferRun(epoch=run.epoch, waiting=waiting)).state

    store.task_runs.start("flights", StartRun(run_id="0-new", task="t"))
    new = claim()["0-new"]
    for n in range(35):
        wait_for(store, f"r{n:02}")
    owner.append(event("a", *owner.epochs.keys()))
    turns = 0

    def between() -> bool:
        nonlocal turns
        turns += 1
        if turns == 3:
            assert defer(new) == "deferred"
            assert defer(claim()["r00"]) == "deferred"
        return True

    assert store.event_waits.deliver(taken(store.event_waits), between) == 36
    assert (set(had(store).values()), len(had(store)), open_events(store)) == ({1}, 36, 0)
    runs = claim()
    assert "r00" not in runs
    assert json.loads(runs["0-new"].kwargs)["event"]["id"] == "a"
    owner.append(event("b", *owner.epochs.keys(), follows="a"))
    assert store.event_waits.deliver(taken(store.event_waits)) == 1
    assert had(store)["r00"] == 2


def test_a_second_api_server_that_claims_the_event_stops_the_first(store: Store, owner: Holder, clock: TurnedClock) -> None:
    for n in range(35):
        wait_for(store, f"r{n:02}")
    owner.append(event("a", *owner.epochs.keys()))
    other = EventWaits(store._database, store.task_runs.commit_signal, store.ages)
    gone = 0

    def overtaken() -> bool:
        nonlocal gone
        gone += 1
        if gone == 2:
            clock.turn(31)
            assert other.deliver(taken(other)) == 28
        return True

    assert store.event_waits.deliver(taken(store.event_waits), overtaken) == 7
    assert (set(had(store).values()), len(had(store))) == ({1}, 35)


def wait_by(store: Store, run_id: str, *patterns: str) -> None:
    waiting = WaitCondition(event=AwaitedEvent(on=list(patterns)))
    store.task_runs.start("flights", StartRun(run_id=run_id, task="t", waiting=waiting))


def test_runs_with_many_patterns_are_examined_in_slices(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_waits, "MAX_EXAMINED_RUNS", 500)
    monkeypatch.setattr(wait_terms, "MAX_PATTERNS", 10)
    for n in range(9):
        wait_by(store, f"r{n}", "le*s", "x*", "*y", "*z")
    wait_by(store, "many", *(f"*{n}" for n in range(20)), "*")
    owner.append(event("a", *owner.epochs.keys()))
    claims, seen = taken(store.event_waits), steps(store)
    assert store.event_waits.deliver(claims) == 10
    assert [count for count in seen if count] == [2, 2, 2, 2, 1, 1]
    assert (set(had(store).values()), len(had(store)), open_events(store)) == ({1}, 10, 0)


def test_patterns_of_other_names_are_not_read(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_terms, "MAX_PATTERNS", 1)
    for n in range(20):
        wait_by(store, f"other{n}", f"x{n}*", f"legs{n}?")
    wait_by(store, "mine", "leg?")
    owner.append(event("a", *owner.epochs.keys()))
    claims, seen = taken(store.event_waits), steps(store)
    assert store.event_waits.deliver(claims) == 1
    assert len(seen) - 1 == 1, "one transaction reads the one run, and settles the event"


@pytest.mark.parametrize("transactions", [1, 2, 4])
def test_a_crash_between_two_slices_of_patterns_neither_loses_nor_repeats_an_event(
    store: Store, owner: Holder, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch, transactions: int
) -> None:
    monkeypatch.setattr(wait_terms, "MAX_PATTERNS", 5)
    for n in range(9):
        wait_by(store, f"r{n}", "no*", "*s" if n % 2 else "*t")
    owner.append(event("a", *owner.epochs.keys()))
    store.event_waits.deliver(taken(store.event_waits), stopping_after(transactions))
    clock.turn(31)
    other = EventWaits(store._database, store.task_runs.commit_signal, store.ages)
    other.deliver(taken(other))
    assert (had(store), open_events(store)) == ({f"r{n}": 1 for n in range(1, 9, 2)}, 0)


def test_patterns_match_as_fnmatch_does() -> None:
    seed = 20261122
    random = Random(seed)
    for _ in range(20_000):
        pattern, name = ("".join(random.choices("ab[]*?!-/", k=random.randint(1, 6))) for _ in "12")
        asked = AwaitedEvent(on=[pattern])
        waits = WaitIndex([Wait("r", "p*[x]", asked, 0)], {(1, "p*[x]"): [name]})
        found = waits.have(SimpleNamespace(seq=1, id="e", subject=None, type="t"))
        assert found == fnmatchcase(name, pattern), (seed, name, pattern)
