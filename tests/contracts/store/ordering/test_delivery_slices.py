"""The contract of a batch with events for many task runs: each run continues once, in any number of transactions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import event as on
from sqlalchemy import func, select

from headrace.errors import StorageBusy
from headrace.store import Store
from headrace.store.db import slices
from headrace.store.log.append import UnresolvedBatch, prepare
from headrace.store.tables.log import events
from headrace.store.tables.task_runs import task_runs
from headrace.store.task_runs.sweep import BATCH_STEPS
from headrace.wire.custody.events import EventBatch
from headrace.wire.task_runs import AwaitedTrigger, ClaimRuns, StartRun, WaitCondition
from support.processes.store import Holder, event, holder, registration

MANY = 2 * BATCH_STEPS + 5


def waiting_runs(store: Store, count: int, text: str = "") -> Holder:
    """Start runs that wait for a trigger each; return the triggerer that holds these triggers."""
    for n in range(count):
        waiting = WaitCondition(trigger=AwaitedTrigger(classpath="a.B", kwargs={}), kwargs=json.dumps({"text": text}))
        store.task_runs.start("flights", StartRun(run_id=f"r{n:03}", task="t", waiting=waiting))
    owner = holder(store)
    assert len(owner.load()) == count
    return owner


def one_for_each(owner: Holder) -> EventBatch:
    return owner.batch(*(event(f"e{trigger}", trigger) for trigger in owner.epochs))


def continued(store: Store) -> list[int]:
    """Return a list that gets, with each commit of the writer, how many runs continued."""
    engine, found = store._database._writer._engine, [0]

    @on.listens_for(engine, "after_cursor_execute")
    def note(_connection: object, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE task_runs"):
            found[-1] += cursor.rowcount

    @on.listens_for(engine, "commit")
    def commit(_connection: object) -> None:
        found.append(0)

    return found


def scheduled(store: Store) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).where(task_runs.c.state == "scheduled")).scalar_one())


def in_the_log(store: Store) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(events)).scalar_one())


def test_a_batch_for_many_runs_is_delivered_in_slices(store: Store) -> None:
    owner = waiting_runs(store, MANY)
    seen = continued(store)
    assert owner.append(*one_for_each(owner).events) == ["stored"] * MANY
    assert [count for count in seen if count] == [BATCH_STEPS, BATCH_STEPS, 5]
    assert (scheduled(store), in_the_log(store)) == (MANY, 0)
    assert owner.append(*one_for_each(owner).events) == ["duplicate"] * MANY


def test_slices_of_runs_with_large_arguments_are_bounded_in_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = waiting_runs(store, 5, "x" * 10_000)
    monkeypatch.setattr(slices, "MAX_SLICE_BYTES", 25_000)
    seen = continued(store)
    assert owner.append(*one_for_each(owner).events) == ["stored"] * 5
    assert [count for count in seen if count] == [2, 2, 1]


def test_later_events_for_resumed_runs_are_duplicates(store: Store) -> None:
    owner = waiting_runs(store, MANY)
    assert owner.append(event("a", *owner.epochs), event("b", *owner.epochs), event("c", 1)) == ["stored", "duplicate", "duplicate"]
    worker = store.jobs.register(registration("worker")).id
    assert scheduled(store) == MANY
    assert {json.loads(run.kwargs)["text"] for run in store.task_runs.claim(worker, ClaimRuns(capacity=99, tasks=["t"])).runs} == {""}


@pytest.mark.parametrize("transactions", [1, 2])
def test_a_crash_between_two_slices_neither_loses_nor_repeats_an_event(store: Store, transactions: int) -> None:
    owner = waiting_runs(store, MANY)
    batch, delivered = one_for_each(owner), frozenset[int]()
    for _ in range(transactions):
        answer = store._database.collect(store.log._append, prepare(owner.job_id, batch)).result()
        assert isinstance(answer, UnresolvedBatch)
        delivered |= answer.delivered
    assert scheduled(store) == len(delivered) == transactions * BATCH_STEPS
    again = owner.append(*batch.events)
    assert again == ["duplicate" if item.firings[0] in delivered else "stored" for item in batch.events]
    assert (scheduled(store), in_the_log(store)) == (MANY, 0)


def test_a_store_closed_between_two_slices_reports_busy(store: Store) -> None:
    owner = waiting_runs(store, MANY)
    answer = store.log.append_later(owner.job_id, one_for_each(owner))
    store.close()
    with pytest.raises(StorageBusy):
        answer.result()
