"""The contract of task runs that wait for events of the log: each event once, after its leader, with any interleaving."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import func, select

from headrace.core.task_run import TIMED_OUT
from headrace.store import Store
from headrace.store.ordering.log_feed import LOOKBACK
from headrace.store.queries.ordering_scopes import sql_scopes
from headrace.store.queries.task_runs import task_run
from headrace.store.tables.control import triggers
from headrace.store.tables.task_runs import event_wait_terms
from headrace.store.task_runs import earlier_events, task_runs
from headrace.store.task_runs.earlier_events import MAX_SCANNED_EVENTS
from headrace.store.task_runs.event_waits import EventWaits
from headrace.store.task_runs.wait_terms import waits_for
from headrace.wire.custody.events import EventItem
from headrace.wire.task_runs import AwaitedEvent, ClaimedRun, ClaimRuns, DeferRun, FinishRun, StartRun, TaskRunDetail, WaitCondition
from support.processes.store import TurnedClock, event, holder, registration


class Feed:
    """What triggers fire on. `ids` names the triggers' ids."""

    def __init__(self, store: Store) -> None:
        self._holder = holder(store, "legs.a", "others")
        with store.reading() as connection:
            self.ids = {row.name: row.id for row in connection.execute(select(triggers.c.name, triggers.c.id))}

    def store_events(self, *events: EventItem) -> None:
        self._holder.append(*events)


@pytest.fixture
def feed(store: Store) -> Feed:
    return Feed(store)


class Runs:
    """A worker that lets its runs wait for events, and an api that hands them over."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.job = store.jobs.register(registration("worker")).id
        self.running: dict[str, None] = {}

    def start(self, run_id: str = "one", **awaited: Any) -> str:
        waiting = WaitCondition(event=awaited_event(**awaited), kwargs='{"day":1}') if awaited else None
        return self.store.task_runs.start("flights", StartRun(run_id=run_id, task="watch", waiting=waiting)).state

    def claim(self) -> list[ClaimedRun]:
        claim = ClaimRuns(capacity=9, tasks=["watch"], running=[*self.running])
        runs = self.store.task_runs.claim(self.job, claim).runs
        self.running |= dict.fromkeys(run.run_id for run in runs)
        return runs

    def defer(self, run: ClaimedRun, timeout: float | None = None, **awaited: Any) -> str:
        waiting = WaitCondition(event=awaited_event(**awaited), method="goes_on", timeout=timeout)
        self.running.pop(run.run_id, None)
        return self.store.task_runs.defer(self.job, run.run_id, DeferRun(epoch=run.epoch, waiting=waiting)).state

    def got(self) -> list[tuple[str, str]]:
        """Claim what may go on; return each run with the id of the event that it goes on with."""
        return [(run.run_id, json.loads(run.kwargs)["event"]["id"]) for run in self.claim()]

    def shown(self, run_id: str = "one") -> TaskRunDetail:
        with self.store.reading() as connection:
            found = task_run(connection, run_id)
        assert found is not None
        return found


def awaited_event(on: str = "legs.*", **fields: Any) -> AwaitedEvent:
    return AwaitedEvent(on=[on], **fields)


@pytest.fixture
def runs(store: Store) -> Runs:
    return Runs(store)


def dispatch(store: Store) -> None:
    """Hand over all that there is."""
    while (taken := store.event_waits.take()) is not None and (taken.read or taken.claims):
        store.event_waits.deliver(taken.claims)


def test_a_run_resumes_with_the_event_as_a_cloud_event(store: Store, feed: Feed, runs: Runs) -> None:
    legs = feed.ids["legs.a"]
    feed.store_events(event("before", legs))
    runs.start()
    (run,) = runs.claim()
    assert runs.defer(run, subject="N1") == "deferred"
    assert runs.shown().waits_for_event == awaited_event(subject="N1")
    feed.store_events(
        event("other", legs, subject="N2"), event("mine", legs, subject="N1", payload='{"n": 1}'), event("next", legs, subject="N1")
    )
    dispatch(store)
    (again,) = runs.claim()
    given = json.loads(again.kwargs)["event"]
    assert (again.method, given["id"], given["subject"], given["data"], given["specversion"]) == ("goes_on", "mine", "N1", {"n": 1}, "1.0")
    assert store.event_waits.take() is None  # nobody waits, so nothing is read


def test_an_event_received_before_the_run_waits_is_not_missed(store: Store, feed: Feed, runs: Runs) -> None:
    legs = feed.ids["legs.a"]
    runs.start("idle", on="nothing.*")  # the scope reads on for another's sake
    runs.start()
    (run,) = runs.claim()
    feed.store_events(event("quick", legs))
    dispatch(store)
    assert runs.defer(run) == "scheduled"
    assert runs.got() == [("one", "quick")]


def test_an_event_is_delivered_after_its_leader(store: Store, feed: Feed, runs: Runs, clock: TurnedClock) -> None:
    legs = feed.ids["legs.a"]
    runs.start(on="legs.*", id="second")
    feed.store_events(event("second", legs, follows="first"))
    dispatch(store)
    assert runs.got() == []
    with store.reading() as connection:
        (shown,) = sql_scopes(connection, 1)
    assert (shown.scope, shown.kind, shown.lag, shown.waiting) == ("task-runs", "task-runs", 0, 1)
    assert [(wait.id, wait.follows, wait.leader) for wait in shown.waits] == [("second", "first", "missing")]
    feed.store_events(event("first", feed.ids["others"]))
    dispatch(store)
    assert runs.got() == [("one", "second")]
    with store.reading() as connection:
        assert sql_scopes(connection, 2) == []  # nobody waits
    runs.start("two", on="legs.*")
    feed.store_events(event("orphan", legs, follows="never"))
    dispatch(store)
    assert runs.got() == []
    clock.turn(LOOKBACK / 1_000_000 + 1)
    dispatch(store)
    runs.job = store.jobs.register(registration("worker")).id  # the clock went past the old one's life
    (run,) = runs.claim()
    given = json.loads(run.kwargs)["event"]
    assert (given["id"], given["headracemark"]) == ("orphan", "lost")


def test_every_waiting_run_of_the_project_gets_the_event(store: Store, feed: Feed, runs: Runs) -> None:
    for name in ("a", "b", "c"):
        runs.start(name, on="legs.*" if name != "c" else "others")
    elsewhere = WaitCondition(event=awaited_event())
    store.task_runs.start("freight", StartRun(run_id="d", task="watch", waiting=elsewhere))
    feed.store_events(event("1", feed.ids["legs.a"]))
    dispatch(store)
    assert sorted(runs.got()) == [("a", "1"), ("b", "1")]


def test_an_event_claimed_again_after_a_crash_is_delivered_once(store: Store, feed: Feed, runs: Runs, clock: TurnedClock) -> None:
    runs.start()
    (run,) = runs.claim()
    runs.defer(run)
    feed.store_events(event("1", feed.ids["legs.a"]))
    taken = store.event_waits.take()
    assert taken is not None
    store.event_waits.deliver(taken.claims)
    (again,) = runs.claim()
    assert runs.defer(again) == "deferred"
    assert store.event_waits.deliver(taken.claims) == 0  # an api that died before it settled them, and another that has them again
    assert runs.got() == []


def test_a_run_that_begins_to_wait_during_the_delivery_gets_the_event(
    store: Store, feed: Feed, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.start("one")
    runs.start("two")
    claimed = {run.run_id: run for run in runs.claim()}
    runs.defer(claimed["one"])
    feed.store_events(event("1", feed.ids["legs.a"]))
    taken = store.event_waits.take()
    assert taken is not None
    write = store._database.write

    def write_and_let_another_wait(work: Callable[[Any], Any]) -> Any:
        answer = write(work)
        monkeypatch.setattr(store._database, "write", write)
        runs.defer(claimed["two"])
        return answer

    monkeypatch.setattr(store._database, "write", write_and_let_another_wait)
    assert store.event_waits.deliver(taken.claims) == 1
    dispatch(store)
    assert sorted(runs.got()) == [("one", "1"), ("two", "1")]


def test_a_wait_ends_with_its_timeout_or_the_cancellation_of_its_run(store: Store, feed: Feed, runs: Runs, clock: TurnedClock) -> None:
    for name in ("one", "two"):
        runs.start(name)
    for run in runs.claim():
        runs.defer(run, timeout=5)
    store.task_runs.cancel("two")
    clock.turn(6)
    store.task_runs.sweep()
    assert (runs.shown("one").error, runs.shown("one").waits_for_event, runs.shown("two").state) == (TIMED_OUT, None, "cancelled")
    feed.store_events(event("1", feed.ids["legs.a"]))
    assert store.event_waits.take() is None


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
@pytest.mark.slow
def test_a_run_that_waits_repeatedly_gets_each_event_once_in_order(store: Store, feed: Feed, runs: Runs, seed: int) -> None:
    chance = random.Random(seed)
    legs = feed.ids["legs.a"]
    leaders = {f"{n}": f"{chance.randrange(n)}" if n and chance.random() < 0.7 else None for n in range(25)}
    coming = [event(id, legs, follows=leader) for id, leader in leaders.items()]
    chance.shuffle(coming)
    coming += chance.sample(coming, 5)
    apis = [store.event_waits, EventWaits(store._database, store.task_runs.commit_signal, store.ages)]
    hands: list[tuple[EventWaits, Any]] = []
    runs.start()
    got: list[str] = []
    running: ClaimedRun | None = None
    for _ in range(3_000):
        if len(got) == len(leaders):
            break
        what = chance.random()
        if what < 0.3 and coming:
            feed.store_events(*[coming.pop() for _ in range(min(len(coming), chance.randint(1, 4)))])
        elif what < 0.5:
            api = chance.choice(apis)
            taken = api.take()
            if taken is not None and taken.claims:
                hands.append((api, taken.claims))
        elif what < 0.7 and hands:
            api, claims = hands.pop(chance.randrange(len(hands)))
            api.deliver(claims)
        elif running is not None:
            runs.defer(running)
            running = None
        else:
            for running in runs.claim():
                if "event" in json.loads(running.kwargs):
                    got.append(json.loads(running.kwargs)["event"]["id"])
    assert sorted(got, key=int) == list(leaders)
    place = {id: number for number, id in enumerate(got)}
    assert all(leader is None or place[leader] < place[id] for id, leader in leaders.items())
    assert running is not None
    store.task_runs.finish(runs.job, "one", FinishRun(epoch=running.epoch, state="succeeded", result="null"))
    assert store.event_waits.take() is None


@pytest.mark.parametrize("others", [1, 600, MAX_SCANNED_EVENTS + 600])
def test_an_earlier_event_is_found_among_many_others(store: Store, feed: Feed, runs: Runs, others: int) -> None:
    legs = feed.ids["legs.a"]
    runs.start("idle", on="nothing")  # the scope reads on for another's sake
    runs.start()
    (run,) = runs.claim()
    for start in range(0, others, 2_000):
        feed.store_events(*(event(f"o{n}", legs, subject="other") for n in range(start, min(others, start + 2_000))))
    feed.store_events(event("mine", legs, subject="N1", follows="late"), event("late", legs, subject="N1"))
    dispatch(store)
    assert runs.defer(run, subject="N1") == "scheduled"
    assert runs.got() == [("one", "late")], "the leader comes first"


def test_an_event_handled_between_lookup_and_wait_is_not_missed(
    store: Store, feed: Feed, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    legs = feed.ids["legs.a"]
    runs.start("idle", on="legs.*", id="other")
    runs.start("second", on="legs.*", id="mine")  # lets the event be claimed
    runs.start()
    (run,) = runs.claim()
    feed.store_events(event("mine", legs))
    taken = store.event_waits.take()
    assert taken is not None
    assert len(taken.claims) == 1
    looked_back = earlier_events.find_earlier_event

    def then_handed(*given: Any) -> Any:
        found = looked_back(*given)
        store.event_waits.deliver(taken.claims)
        return found

    monkeypatch.setattr(task_runs, "find_earlier_event", then_handed)
    assert runs.defer(run, id="mine") == "scheduled"
    assert sorted(runs.got()) == [("one", "mine"), ("second", "mine")]


AWAITED = [{"id": "1"}, {"subject": "S"}, {"on": "legs.a"}, {"type": "leg", "on": "*"}, {"on": "legs.*"}, {"on": "l?gs.[ab]"}]


@pytest.mark.parametrize("awaited", AWAITED)
def test_an_event_resumes_a_run_by_each_field_of_its_condition(store: Store, feed: Feed, runs: Runs, awaited: dict[str, str]) -> None:
    runs.start(**awaited)
    for unlike in ({"id": "x", "type": "other"}, {"id": "y", "subject": "T", "type": "other"}):
        feed.store_events(event(unlike.pop("id"), feed.ids["others"], **unlike))
    dispatch(store)
    assert runs.got() == []
    feed.store_events(event("1", feed.ids["legs.a"], subject="S"))
    dispatch(store)
    assert runs.got() == [("one", "1")]
    with store.reading() as connection:
        assert connection.execute(select(func.count()).select_from(event_wait_terms)).scalar_one() == 0


def test_runs_that_cannot_match_an_event_are_not_read(store: Store, feed: Feed, runs: Runs) -> None:
    for n in range(25):
        runs.start(f"by-id-{n}", on="*", id=f"never{n}")
        runs.start(f"by-subject-{n}", on="*", subject=f"never{n}")
        runs.start(f"by-name-{n}", on=f"never{n}")
        runs.start(f"by-glob-{n}", on="never.*")
    runs.start(on="legs.*", id="mine")
    legs = feed.ids["legs.a"]
    feed.store_events(event("a", legs, subject="N1"), event("mine", legs), event("b", legs))
    rows = [SimpleNamespace(seq=n, id=id, subject=None, type="leg") for n, id in enumerate(("a", "mine", "b"), 1)]
    with store.reading() as connection:
        found = waits_for(connection, rows, {(n, "flights"): ["legs.a"] for n in (1, 2, 3)}, 500)
    assert ([wait.run_id for wait in found.waits], found.last) == (["one"], None)
    taken = store.event_waits.take()
    assert taken is not None
    assert [claim.event.id for claim in taken.claims] == ["mine"], "what nobody waits for is not even claimed"


def test_events_without_waiting_runs_are_skipped_and_still_lead(store: Store, feed: Feed, runs: Runs, clock: TurnedClock) -> None:
    legs, others = feed.ids["legs.a"], feed.ids["others"]
    runs.start(on="legs.*", subject="mine")
    feed.store_events(*(event(f"{n}", others, follows=f"{n - 1}" if n else None) for n in range(50)))
    dispatch(store)
    with store.reading() as connection:
        (shown,) = sql_scopes(connection, 50)
    assert (shown.cursor, shown.lag, shown.ordered) == (50, 0, 0), "it was not even ordered"
    feed.store_events(
        event("orphan", others, follows="late"), event("a", legs, follows="49"), event("b", legs, subject="mine", follows="orphan")
    )
    dispatch(store)
    assert runs.got() == [], "it waits for one that waits itself"
    feed.store_events(event("late", others))
    dispatch(store)
    assert runs.got() == [("one", "b")]
    assert store.event_waits.take() is None


@pytest.mark.parametrize("on", ["orders", "ord*"])
def test_a_run_waits_for_the_events_of_all_shards_of_a_watch(store: Store, runs: Runs, on: str) -> None:
    feed = holder(store, "orders#0-of-2", "orders#1-of-2")
    runs.start("one", on=on, id="late")
    runs.start("two", on=on, id="early")
    assert runs.claim() == []
    feed.append(event("early", 1))
    feed.append(event("late", 2))
    dispatch(store)
    assert sorted(runs.got()) == [("one", "late"), ("two", "early")]
