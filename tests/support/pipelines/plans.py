"""What the tests of plans share: drivers, plans, reports, and what the store has of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select

from headrace.client.pipeline import PipelineClient
from headrace.store import Store
from headrace.store.pipelines.scope_rows import cursor_of, scope_row
from headrace.store.tables.pipelines import plan_slices
from headrace.wire.custody.events import Cursor
from headrace.wire.pipelines.plans import OpenRun, Plan, PlannedRun, PositionBlock
from headrace.wire.pipelines.runs import RunReport
from support.processes.calls import acquire_scope
from support.processes.store import registration

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def driver(store: Store) -> int:
    return store.jobs.register(registration("pipeline")).id


def planned(number: int = 0, slice: int = 0, **other: Any) -> PlannedRun:
    given: dict[str, Any] = {"number": number, "pipeline": "p", "events": 1, "first": 1, "last": 1, "slice": slice}
    return PlannedRun(**(given | other))


def plan(batch: int, *planned_runs: PlannedRun, epoch: int = 1, **other: Any) -> Plan:
    """Return a plan of these runs, with the slices that they name."""
    cursor = other.pop("cursor", None) or Cursor(cursor=batch, batch=batch)
    named = sorted({run.slice for run in planned_runs})
    data = [f"{batch}/{slice}".encode() for slice in named]
    given: dict[str, Any] = {"epoch": epoch, "cursor": cursor, "runs": list(planned_runs), "slices": data}
    return Plan(**(given | other))


def report(batch: int, number: int = 0, **other: Any) -> RunReport:
    given: dict[str, Any] = {
        "pipeline": "p",
        "scope": "s",
        "batch": batch,
        "number": number,
        "state": "succeeded",
        "started": NOON,
        "seqs": [(1, 1)],
    }
    return RunReport(**({"run_id": f"{batch}.{number}"} | given | other))


def open_runs(store: Store, job: int) -> list[OpenRun]:
    """Return all open runs of the scope, page by page."""
    found: list[OpenRun] = []
    while True:
        after = (found[-1].batch, found[-1].number) if found else (0, 0)
        page = store.plans.open_runs(job, "s", *after).runs
        if not page:
            return found
        found += page


def places(store: Store, job: int) -> list[tuple[int, int]]:
    return [(run.batch, run.number) for run in open_runs(store, job)]


def state(store: Store, job: int) -> dict[str, bytes]:
    """Return the whole state of the scope, page by page."""
    entries: dict[str, bytes] = {}
    after: str | None = ""
    while after is not None:
        page = store.plans.state(job, "s", after)
        entries |= page.entries
        after = page.after
    return entries


def stored_slices(store: Store) -> list[tuple[int, int]]:
    with store.reading() as connection:
        order = (plan_slices.c.batch, plan_slices.c.number)
        return [tuple(row) for row in connection.execute(select(*order).order_by(*order))]


def stored_cursor(store: Store, scope: str) -> Cursor:
    """Return the cursor of a scope; that of a scope without a row is at 0."""
    with store.reading() as connection:
        row = scope_row(connection, scope)
    return Cursor(cursor=0, batch=0) if row is None else cursor_of(row)


def plan_next(
    client: PipelineClient, scope: str, cursor: Cursor, *, run_of: str | None = None, positions: Sequence[PositionBlock] = ()
) -> int:
    """Store the next plan of a scope, with a run of the pipeline `run_of` on event 1; return its batch, which the cursor gets too."""
    lease = acquire_scope(client, scope)
    made = _next_plan(lease.epoch, lease.cursor.batch + 1, cursor, run_of)
    client.plan(scope, made.model_copy(update={"positions": list(positions)}))
    return made.cursor.batch


def store_next(store: Store, job: int, scope: str, cursor: Cursor, *, run_of: str | None = None) -> int:
    """Do as `plan_next`, straight on a store."""
    lease = store.scope_leases.acquire(job, scope)
    made = _next_plan(lease.epoch, lease.cursor.batch + 1, cursor, run_of)
    store.plans.store(job, scope, made)
    return made.cursor.batch


def _next_plan(epoch: int, batch: int, cursor: Cursor, run_of: str | None) -> Plan:
    runs = [] if run_of is None else [PlannedRun(number=0, pipeline=run_of, events=1, first=1, last=1, slice=0)]
    return Plan(epoch=epoch, cursor=cursor.model_copy(update={"batch": batch}), runs=runs, slices=[b"x"] * len(runs))
