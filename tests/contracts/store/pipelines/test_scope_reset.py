"""The contract of retained scope data: events of open runs are retained, and a reset or removal deletes all data of the scope."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, func, select

from headrace.errors import ApiRefused, Fenced
from headrace.store import Store
from headrace.store.db import slices
from headrace.store.db.ages import AgeLimit
from headrace.store.pipelines import ledger_deletion
from headrace.store.queries.scopes import pipeline_scopes
from headrace.store.retention.event_log import logged_events
from headrace.store.retention.pruner import Pruner
from headrace.store.tables.log import events
from headrace.store.tables.pipelines import plan_slices, planned_runs, scope_leases, scope_state
from headrace.wire.control.jobs import CompleteJob, Heartbeat, RunningBatch
from headrace.wire.custody.events import Cursor
from headrace.wire.pipelines.scopes import ScopeReset
from support.pipelines.plans import driver, open_runs, places, plan, planned, report, state
from support.processes.store import TurnedClock, event, holder

LEDGER = (planned_runs, plan_slices, scope_state)


def ended(store: Store, job: int) -> None:
    store.jobs.complete(job, CompleteJob(state="succeeded"))


def rows(store: Store) -> list[int]:
    """Return how many rows each table of the ledger has."""
    with store.reading() as connection:
        return [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in LEDGER]


def filled(store: Store, scope: str = "s") -> int:
    """Let a driver store ten runs and ten keys for a scope, and end."""
    holder(store, "first").append(*(event(f"{n}") for n in range(20)))
    job = driver(store)
    store.scope_leases.acquire(job, scope)
    keys = {f"k{n}": bytes(100) for n in range(10)}
    cursor = Cursor(cursor=20, batch=1, waiting=3)
    store.plans.store(job, scope, plan(1, *(planned(n, n) for n in range(10)), cursor=cursor, state=keys))
    ended(store, job)
    return job


def kept_events(store: Store) -> list[int]:
    """Forget the log's events as if all were old; return what is left."""
    old = AgeLimit(before=2**62, head=2**62, next_head=2**62, received=0, keys=0)
    after = 0
    while not (swept := store.write(partial(logged_events, old=old, limit=500, after=after))).done:
        after = swept.position
    with store.reading() as connection:
        return list(connection.execute(select(events.c.seq).order_by(events.c.seq)).scalars())


def test_a_reset_scope_restarts_as_a_new_incarnation(store: Store) -> None:
    job = filled(store)
    before = store.scope_leases.acquire(driver_that_ends := driver(store), "s")
    ended(store, driver_that_ends)
    assert store.scopes.reset("s", 5) == ScopeReset(scope="s", first=5, open_runs=10, waiting=3, held=0)
    assert rows(store) == [0, 0, 0]
    after = driver(store)
    lease = store.scope_leases.acquire(after, "s", 1)
    assert lease.incarnation != before.incarnation
    assert (lease.epoch, lease.begin_seq, lease.cursor.cursor, lease.cursor.batch, lease.cursor.waiting) == (3, 4, 4, 0, 0)
    assert (places(store, after), state(store, after)) == ([], {})
    with pytest.raises(Fenced):
        store.plans.store(job, "s", plan(2))
    with pytest.raises(Fenced):
        store.runs.report(job, [report(1)])
    store.plans.store(after, "s", plan(1, planned(), epoch=3))
    assert places(store, after) == [(1, 0)]


def test_a_scope_held_by_a_running_job_is_neither_reset_nor_removed(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned(), state={"k": b""}))
    for change in (lambda: store.scopes.reset("s", None), lambda: store.scopes.remove("s")):
        with pytest.raises(ApiRefused, match=f"read by job {job}"):
            change()
    assert rows(store) == [1, 1, 1]
    assert (store.scopes.reset("another", None), store.scopes.remove("another")) == (None, False)


def test_a_reset_beyond_the_log_changes_nothing(store: Store) -> None:
    filled(store)
    with pytest.raises(ApiRefused, match="ends at event 20: a scope cannot begin at event 22"):
        store.scopes.reset("s", 22)
    assert rows(store) == [10, 10, 10]


def test_removing_a_scope_deletes_its_data_and_no_other_data(store: Store) -> None:
    filled(store)
    other = driver(store)
    store.scope_leases.acquire(other, "other")
    store.plans.store(other, "other", plan(1, planned(), state={"k": b""}))
    assert store.scopes.remove("s")
    assert rows(store) == [1, 1, 1]
    with store.reading() as connection:
        assert connection.execute(select(scope_leases.c.scope)).scalars().all() == ["other"]


@pytest.mark.parametrize("bound", ["rows", "bytes"])
def test_data_of_a_removed_scope_is_deleted_in_slices_across_restarts(
    store: Store, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    filled(store)
    if bound == "rows":
        monkeypatch.setattr("headrace.store.pipelines.scopes.LEDGER_ROWS", 4)
    else:
        monkeypatch.setattr(slices, "MAX_SLICE_BYTES", 250)
    delete, sizes = ledger_deletion.delete_ledgers, list[int]()

    def dying(connection: Connection, limit: int) -> int:
        if len(sizes) == 2:
            raise RuntimeError("the api dies here")
        sizes.append(delete(connection, limit))
        return sizes[-1]

    monkeypatch.setattr("headrace.store.pipelines.scopes.delete_ledgers", dying)
    with pytest.raises(RuntimeError, match="dies here"):
        store.scopes.reset("s", None)
    left = sum(rows(store))
    assert 0 < left == 30 - sum(sizes)
    assert kept_events(store) == [], "what is left holds nothing back"
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    assert (places(store, job), state(store, job)) == ([], {})
    Pruner(store, days=30).prune()
    assert rows(store) == [0, 0, 0]


def test_events_of_open_runs_are_not_pruned_before_their_outcome(store: Store) -> None:
    holder(store, "first").append(*(event(f"{n}") for n in range(9)))
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    cursor = Cursor(cursor=9, batch=1, low_watermark=8)
    store.plans.store(job, "s", plan(1, planned(0, 0, first=6, last=7), planned(1, 0, first=4, last=9), cursor=cursor))
    assert kept_events(store) == [4, 5, 6, 7, 8, 9]
    assert needs(store) == seen(store, 4)
    store.runs.report(job, [report(1, 1)])
    assert kept_events(store) == [6, 7, 8, 9]
    store.runs.report(job, [report(1, 0, state="failed", error="no", dead_letter="l", seqs=[(6, 7)])])
    assert kept_events(store) == [6, 7, 9], "the dead letter keeps its events, and holds nothing else back"
    assert needs(store) == seen(store, 9)


def test_a_scope_without_open_runs_needs_events_above_its_low_watermark(store: Store) -> None:
    holder(store, "first").append(*(event(f"{n}") for n in range(9)))
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned(first=8, last=8), cursor=Cursor(cursor=9, batch=1, low_watermark=5)))
    assert kept_events(store) == [6, 7, 8, 9]


def test_a_batch_is_running_while_its_runs_are_open(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned()))
    store.jobs.heartbeat(job, Heartbeat(batch=RunningBatch(scope="s", batch=1, events=9, seconds=1)))

    def open_runs_and_batch() -> tuple[int, bool]:
        with store.reading() as connection:
            (scope,) = pipeline_scopes(connection, 0)
        return scope.open_runs, scope.running_batch is not None

    assert open_runs_and_batch() == (1, True)
    store.runs.report(job, [report(1)])
    assert open_runs_and_batch() == (0, False)
    assert open_runs(store, job) == []


def needs(store: Store) -> Any:
    with store.reading() as connection:
        (scope,) = pipeline_scopes(connection, 9)
    assert scope.needs is not None
    return int(scope.needs.timestamp() * 1_000_000)


def seen(store: Store, seq: int) -> Any:
    with store.reading() as connection:
        return connection.execute(select(events.c.received).where(events.c.seq == seq)).scalar_one()
