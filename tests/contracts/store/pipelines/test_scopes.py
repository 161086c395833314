"""The contract of scopes and runs: the last report counts, and only running jobs can report."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from headrace.errors import Fenced
from headrace.store import Store
from headrace.store.tables.pipelines import pipelines, runs
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor
from headrace.wire.pipelines.runs import RunReport
from support.pipelines.plans import plan, store_next, stored_cursor
from support.processes.store import DATABASES, declaration, opened, registration

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def driver(store: Store) -> int:
    return store.jobs.register(registration("pipeline")).id


def run(**other: Any) -> RunReport:
    given: dict[str, Any] = {"run_id": "r", "pipeline": "delay", "scope": "s", "batch": 1, "state": "running", "started": NOON}
    return RunReport(**(given | other))


def stored_runs(store: Store) -> list[tuple[Any, ...]]:
    with store.reading() as connection:
        return [(row.run_id, row.attempt, row.state) for row in connection.execute(select(runs).order_by(runs.c.run_id))]


def test_a_scope_begins_at_zero_and_advances_with_each_plan(store: Store, driver: int) -> None:
    begun = store.scope_leases.acquire(driver, "s").cursor
    assert (begun.cursor, begun.batch) == (0, 0)
    store_next(store, driver, "s", Cursor(cursor=5, batch=1, ordered=5))
    last = Cursor(cursor=9, batch=2, ordered=8, waiting=1, lost=2, late=3, cycles=4)
    store_next(store, driver, "s", last)
    store_next(store, driver, "other", Cursor(cursor=1, batch=1))
    told = stored_cursor(store, "s")
    names = ("cursor", "batch", "ordered", "waiting", "lost", "late", "cycles")
    assert [getattr(told, name) for name in names] == [getattr(last, name) for name in names]


def test_plans_and_reports_of_an_ended_driver_are_fenced(store: Store, driver: int) -> None:
    store_next(store, driver, "s", Cursor(cursor=5, batch=1))
    store.jobs.complete(driver, CompleteJob(state="failed"))
    with pytest.raises(Fenced):
        store.plans.store(driver, "s", plan(2))
    with pytest.raises(Fenced):
        store.runs.report(driver, [run()])
    assert stored_cursor(store, "s").cursor == 5
    assert stored_runs(store) == []


def test_the_last_report_of_a_run_counts(store: Store, driver: int) -> None:
    store.runs.report(driver, [run(), run(run_id="other")])
    store.runs.report(driver, [run(state="succeeded", finished=NOON, events=3, rows=2, seqs=[(1, 2), (4, 4)])])
    assert stored_runs(store) == [("other", 1, "running"), ("r", 1, "succeeded")]
    with store.reading() as connection:
        row = connection.execute(select(runs).where(runs.c.run_id == "r")).one()
    assert (row.project, row.seqs, row.rows, row.started == row.finished) == ("flights", "[[1,2],[4,4]]", 2, True)


def test_a_new_attempt_reopens_an_ended_run_but_a_late_start_does_not(store: Store, driver: int) -> None:
    store.runs.report(driver, [run(state="failed", error="no"), run()])
    assert stored_runs(store) == [("r", 1, "failed")]
    store.runs.report(driver, [run()])
    assert stored_runs(store) == [("r", 1, "failed")]
    store.runs.report(driver, [run(attempt=2)])
    assert stored_runs(store) == [("r", 2, "running")]


def test_declarations_add_and_remove_pipelines(store: Store, driver: int) -> None:
    store.projects.declare(driver, "flights", declaration(pipelines=["a", "b"]))
    store.projects.declare(driver, "flights", declaration(pipelines=["b"]))
    with store.reading() as connection:
        rows = connection.execute(select(pipelines).order_by(pipelines.c.name)).all()
    assert [(row.name, row.patterns, row.table_name, row.removed) for row in rows] == [
        ("a", '["*"]', "a_table", True),
        ("b", '["*"]', "b_table", False),
    ]
