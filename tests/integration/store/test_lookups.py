"""Lookups by many keys use an index: an append does not scan a log of a billion events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Select, event, select

from headrace.store.dialects.statements import in_list
from headrace.store.ordering.scopes import scope_named
from headrace.store.ordering.sql_store import SqlOrdering
from headrace.store.queries.events import event_detail
from headrace.store.queries.series import series
from headrace.store.queries.status import overview
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import dead_letters, lanes
from headrace.store.tables.log import events, firings
from headrace.wire.custody.events import Cursor
from headrace.wire.task_runs import AwaitedEvent, ClaimRuns, StartRun, WaitCondition
from support.pipelines.plans import store_next
from support.processes.store import event as made
from support.processes.store import holder, opened, registration

LOOKUPS = {
    "events": select(events.c.seq).where(in_list(events.c.key, "values")),
    "firings": select(firings.c.trigger_id).where(in_list(firings.c.seq, "values")),
    "triggers": select(triggers.c.name).where(in_list(triggers.c.id, "values"), triggers.c.state == "waiting"),
    "dead letters": select(dead_letters.c.state).where(in_list(dead_letters.c.id, "values")),
    "lanes": select(lanes.c.id).where(lanes.c.stream == "s", in_list(lanes.c.lane, "values")),
}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("what", LOOKUPS)
def test_sqlite_looks_up_keys_by_index(what: str, count: int, tmp_path: Path) -> None:
    lookup: Select[tuple[object]] = LOOKUPS[what]
    with opened("sqlite", tmp_path) as store, store.reading() as connection:
        plans: list[str] = []

        @event.listens_for(connection, "before_cursor_execute")
        def explain(_connection: object, cursor: Any, statement: str, parameters: object, *_: object) -> None:
            rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in rows)

        connection.execute(lookup, {"values": [b"x" if what == "events" else 1] * count})
    assert plans
    assert all(plan.startswith("SEARCH") for plan in plans), plans


def test_an_append_scans_no_table(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        owner = holder(store, "a")
        plans: list[str] = []

        def explain(_connection: object, cursor: Any, statement: str, parameters: object, *_: object) -> None:
            if statement.lstrip().startswith(("SELECT", "UPDATE", "DELETE")):
                rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
                plans.extend(f"{row[3]}: {statement}" for row in rows)

        engine = store._database._writer._engine
        event.listen(engine, "before_cursor_execute", explain)
        owner.append(made("1", *owner.epochs), made("2", *owner.epochs, follows="1"))
        event.remove(engine, "before_cursor_execute", explain)
    assert plans
    assert [plan for plan in plans if plan.startswith("SCAN")] == []


def plans_of(engine: Any, call: Callable[[], object]) -> list[str]:
    """Return the plans of all that a call asks SQLite."""
    plans: list[str] = []

    def explain(_connection: object, cursor: Any, statement: str, parameters: object, context: Any, many: bool) -> None:
        if not many and statement.lstrip().startswith(("SELECT", "UPDATE", "DELETE", "WITH")):
            rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(f"{row[3]}: {statement}" for row in rows)

    event.listen(engine, "before_cursor_execute", explain)
    try:
        call()
    finally:
        event.remove(engine, "before_cursor_execute", explain)
    assert plans
    return plans


LONG = (
    "events",
    "firings",
    "runs",
    "task_runs",
    "run_events",
    "ordering_events",
    "event_waits",
    "event_wait_terms",
    "webhook_deliveries",
    "event_positions",
    "pruned_event_keys",
)


def whole(plans: list[str]) -> list[str]:
    """Return those that read a table from end to end that grows with the history."""
    return [plan for plan in plans if plan.split(":")[0] in {f"SCAN {table}" for table in LONG}]


def sorts(plans: Iterable[str]) -> list[str]:
    """Return those that sort runs of pipelines or task runs."""
    return [plan for plan in plans if plan.startswith("USE TEMP B-TREE FOR ORDER BY") and re.search("FROM (deferred_)?runs", plan)]


def test_the_status_scans_and_sorts_no_history(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        holder(store, "a")

        def read() -> None:
            with store.reading() as connection:
                overview(connection, store.now(), store.liveness)
                series(connection)

        plans = plans_of(store._database.readers, read)
    assert whole(plans) == []
    sorts = [
        plan for plan in plans if plan.startswith("USE TEMP B-TREE FOR ORDER BY") and ("FROM runs" in plan or "FROM task_runs" in plan)
    ]
    assert sorts == []


def test_an_event_is_found_in_its_scopes_by_indexes(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        owner = holder(store, "a")
        owner.append(made("b", *owner.epochs, follows="a"))
        store_next(store, store.jobs.register(registration("pipeline")).id, "flights", Cursor(cursor=1, batch=0))

        def read() -> None:
            with store.reading() as connection:
                assert event_detail(connection, 1, store.now()) is not None

        plans = plans_of(store._database.readers, read)
    assert whole(plans) == []
    assert any(plan.startswith("SEARCH p USING") and "event_positions" in plan for plan in plans), plans


def test_the_next_due_time_of_a_webhook_is_found_by_indexes(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        scope = store.write(lambda connection: scope_named(connection, "webhook:a", 1))
        home = SqlOrdering(store._database, scope, by_age=False, logged=True)
        plans = plans_of(store._database.readers, home.next_due)
    found = [plan.split(":")[0] for plan in plans if "ordering_events" in plan.split(":")[0]]
    assert len(found) == 2
    assert all(plan.startswith("SEARCH ordering_events USING") and "INDEX ix_ordering_events_scope_id_" in plan for plan in found), found
    assert any("ix_ordering_events_scope_id_since" in plan for plan in found), found


def test_events_for_runs_and_claims_are_found_by_indexes(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        owner = holder(store, "a")
        worker = store.jobs.register(registration("worker")).id
        waiting = WaitCondition(event=AwaitedEvent(on=["a"], subject="S"))
        store.task_runs.start("flights", StartRun(run_id="one", task="t", waiting=waiting))
        owner.append(made("1", *owner.epochs), made("2", *owner.epochs, subject="S"))

        def hand() -> None:
            taken = store.event_waits.take()
            assert taken is not None
            assert store.event_waits.deliver(taken.claims) == 1

        plans = plans_of(store._database._writer._engine, hand)
        plans += plans_of(store._database._writer._engine, lambda: store.task_runs.claim(worker, ClaimRuns(capacity=2, tasks=["t", "u"])))
    # The kinds and the patterns of terms are few, however many runs wait.
    assert [plan for plan in whole(plans) if "event_wait_terms" not in plan.split(":")[0]] == []
    assert [
        plan for plan in plans if plan.startswith("USE TEMP B-TREE FOR ORDER BY") and "FROM task_runs" in plan and "state =" in plan
    ] == []
