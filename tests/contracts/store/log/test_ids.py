"""The contract of ids: the database never reuses an id, even after its row is deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, Boolean, LargeBinary, Table, delete, insert, select

from headrace.errors import Fenced
from headrace.store import Store
from headrace.store.keyring import Keyring
from headrace.store.retention.pruner import Pruner
from headrace.store.tables.base import metadata
from headrace.store.tables.webhooks import webhook_deliveries
from headrace.store.webhooks import Attempt
from headrace.wire.control.jobs import CompleteJob, Heartbeat
from headrace.wire.control.triggers import CleanupTriggers
from headrace.wire.task_runs import AwaitedTrigger, StartRun, WaitCondition
from headrace.wire.webhooks import SetWebhook
from support.processes.store import DATABASES, TurnedClock, event, holder, opened, registration

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
NUMBERED = [table for table in metadata.sorted_tables if table.autoincrement_column is not None]
DAY = 86_400


def row_of(table: Table, number: int) -> dict[str, Any]:
    """Return a row that the table takes, another one for each number."""
    row: dict[str, Any] = {}
    for column in table.columns:
        if column is table.autoincrement_column:
            continue
        match column.type:
            case BigInteger():
                row[column.name] = number
            case Boolean():
                row[column.name] = False
            case LargeBinary():
                row[column.name] = str(number).encode()
            case _:
                row[column.name] = str(number)
    return row


def add(store: Store, table: Table, number: int) -> int:
    """Insert a row; return its id."""
    key = table.autoincrement_column
    assert key is not None
    return store.prune(lambda connection: int(connection.execute(insert(table).values(row_of(table, number)).returning(key)).scalar_one()))


@pytest.mark.parametrize("table", NUMBERED, ids=lambda table: table.name)
def test_ids_of_deleted_rows_are_not_reused(store: Store, table: Table) -> None:
    given = [add(store, table, number) for number in range(2)]
    assert store.prune(lambda connection: connection.execute(delete(table)).rowcount) == 2
    assert add(store, table, 2) > max(given)


def test_a_late_event_of_a_deleted_trigger_resumes_no_other_run(store: Store) -> None:
    waiting = WaitCondition(trigger=AwaitedTrigger(classpath="some.Trigger", kwargs={}))
    store.task_runs.start("flights", StartRun(run_id="one", task="t", waiting=waiting))
    owner = holder(store)
    late = owner.batch(event("late", *owner.epochs))
    store.task_runs.cancel("one")
    store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=list(owner.epochs)))
    store.task_runs.sweep()
    store.task_runs.start("flights", StartRun(run_id="two", task="t", waiting=waiting))
    owner.load()
    assert store.log.append(owner.job_id, late).events == ["fenced"]
    assert store.task_runs.result("two").state == "deferred"


def test_a_pruned_run_that_waited_for_a_trigger_can_start_again(store: Store, clock: TurnedClock) -> None:
    start = StartRun(run_id="one", task="t", waiting=WaitCondition(trigger=AwaitedTrigger(classpath="some.Trigger", kwargs={})))
    store.task_runs.start("flights", start)
    store.task_runs.cancel("one")
    clock.turn(31 * DAY)
    Pruner(store, 30).prune()
    assert store.task_runs.start("flights", start).created


def test_calls_of_a_pruned_job_do_not_affect_other_jobs(store: Store, clock: TurnedClock) -> None:
    ended = store.jobs.register(registration()).id
    store.jobs.complete(ended, CompleteJob(state="succeeded"))
    clock.turn(31 * DAY)
    Pruner(store, 30).prune()
    living = store.jobs.register(registration()).id
    with pytest.raises(Fenced):
        store.jobs.heartbeat(ended, Heartbeat())
    store.jobs.complete(ended, CompleteJob(state="failed", reason="late"))
    store.jobs.heartbeat(living, Heartbeat())


@pytest.mark.parametrize("kind", DATABASES)
def test_a_new_webhook_shares_no_data_with_a_removed_webhook_of_its_name(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path, keyring=Keyring([KEY])) as store:
        given = SetWebhook(url="https://a.example/", secret="whsec_c2VjcmV0cyBvZiB0ZXN0cyBhcmUgbG9uZyBlbm91Z2g=")
        store.webhooks.set("mine", given)
        (removed,) = store.webhooks.active()
        store.webhooks.note(removed, [Attempt(1, 1, "delivered", 200, None, 1)])
        (before,) = store.webhooks.deliveries("mine", 9)
        store.webhooks.remove("mine")
        store.webhooks.set("mine", given)
        (new,) = store.webhooks.active()
        store.webhooks.note(removed, [Attempt(1, 2, "delivered", 200, None, 1)])
        assert not store.webhooks.exists(removed)
        assert store.webhooks.deliveries("mine", 9) == []
        with store.reading() as connection:
            assert connection.execute(select(webhook_deliveries)).all() == []
        assert store.webhooks.summaries("mine")[0].delivered == 0
        store.webhooks.note(new, [Attempt(1, 1, "delivered", 200, None, 1)])
        (after,) = store.webhooks.deliveries("mine", 9)
        assert after.id > before.id
