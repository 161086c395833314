"""The contract of the pages of an audit: each run, dead letter and firing of a scope once, for any number of pages."""

from __future__ import annotations

import random

import pytest

from headrace.store import Store
from headrace.store.queries import scope_audit
from headrace.store.queries.scope_audit import ledger_dead_letters, ledger_firings, ledger_runs, scope_ledger
from headrace.store.tables.log import firings
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor, ScopeReport
from headrace.wire.pipelines.scope_audit import LedgerDeadLetter, LedgerRun
from support.pipelines.plans import driver, plan, planned, report
from support.processes.store import event, holder


def all_firings(store: Store, to: int, again: int, after: int = 0) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    at: tuple[int, int] | None = (after, 2**63 - 1)
    while at is not None:
        with store.reading() as connection:
            page = ledger_firings(connection, "s", to, again, at)
        found += [(seq, page.names[trigger]) for seq, trigger in zip(page.seqs, page.fired, strict=True)]
        at = None if page.after is None else (page.after.seq, page.after.trigger)
    return found


def all_runs(store: Store) -> list[LedgerRun]:
    found: list[LedgerRun] = []
    after: str | None = ""
    while after is not None:
        with store.reading() as connection:
            page = ledger_runs(connection, "s", after)
        found += page.runs
        after = page.after
    return found


def all_letters(store: Store) -> list[LedgerDeadLetter]:
    found: list[LedgerDeadLetter] = []
    after: str | None = ""
    while after is not None:
        with store.reading() as connection:
            page = ledger_dead_letters(connection, "s", after)
        found += page.dead_letters
        after = page.after
    return found


@pytest.mark.parametrize("rows", [1, 2, 1_000])
def test_pages_have_every_run_dead_letter_and_firing_once(store: Store, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(scope_audit, "PAGE_ROWS", rows)
    monkeypatch.setattr(scope_audit, "PAGE_FIRINGS", rows)
    owner = holder(store, "a", "b")
    first, second = sorted(owner.epochs)
    choose = random.Random(5)
    fired = [sorted(choose.sample([first, second], choose.randint(1, 2))) for _ in range(9)]
    owner.append(*(event(f"{n}", *triggers) for n, triggers in enumerate(fired)))
    job = driver(store)
    lease = store.scope_leases.acquire(job, "s")
    told = Cursor(cursor=8, batch=1, waiting=2, report=ScopeReport(held=3))
    store.plans.store(job, "s", plan(1, *(planned(n, n, events=n + 1) for n in range(8)), planned(8, 8, pipeline="q"), cursor=told))
    store.runs.report(job, [report(1, n, rows=n, seqs=[(n, n), (n + 2, n + 3)]) for n in range(3)])
    store.runs.report(job, [report(1, n, state="failed", dead_letter=f"l{n}", seqs=[(n, n)]) for n in (3, 4)])
    store.runs.report(job, [report(1, 5, state="failed"), report(1, 6, state="running")])
    assert [(run.run_id, run.rows, run.seqs) for run in all_runs(store)] == [(f"1.{n}", n, [(n, n), (n + 2, n + 3)]) for n in range(3)]
    assert {run.incarnation for run in all_runs(store)} == {lease.incarnation}
    assert [(letter.id, letter.pipeline, letter.seqs) for letter in all_letters(store)] == [("l3", "p", [(3, 3)]), ("l4", "p", [(4, 4)])]
    names = {first: "a", second: "b"}
    wanted = [(seq, names[trigger]) for seq, triggers in enumerate(fired, 1) for trigger in triggers]
    assert all_firings(store, 8, 0) == [pair for pair in wanted if pair[0] <= 8]
    assert all_firings(store, 8, 0, after=4) == [pair for pair in wanted if 4 < pair[0] <= 8]
    with store.reading() as connection:
        ledger = scope_ledger(connection, "log", "s", store.now())
        assert scope_ledger(connection, "log", "other", store.now()) is None
    assert ledger is not None
    assert (ledger.incarnation, ledger.first, ledger.cursor, ledger.batch) == (lease.incarnation, 1, 8, 1)
    assert (ledger.waiting, ledger.held) == (2, 3)


def test_a_late_firing_counts_after_the_scope_has_read_it(store: Store) -> None:
    owner = holder(store, "a", "b")
    first, second = sorted(owner.epochs)
    owner.append(event("1", first), event("2", first))
    owner.append(event("1", second))  # a copy, on which another trigger fires
    with store.reading() as connection:
        assert len(connection.execute(firings.select()).all()) == 3
    store.scope_leases.acquire(driver(store), "s")
    assert all_firings(store, 2, 0) == [(1, "a"), (2, "a")]
    assert all_firings(store, 2, 1) == [(1, "a"), (1, "b"), (2, "a")]


def test_runs_have_the_incarnation_of_their_scope(store: Store) -> None:
    job = driver(store)
    first = store.scope_leases.acquire(job, "s").incarnation
    store.plans.store(job, "s", plan(1, planned()))
    store.runs.report(job, [report(1)])
    store.jobs.complete(job, CompleteJob(state="succeeded"))
    store.scopes.reset("s", 1)
    job = driver(store)
    second = store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned(), epoch=second.epoch))
    store.runs.report(job, [report(1, run_id="second")])
    assert {run.run_id: run.incarnation for run in all_runs(store)} == {"1.0": first, "second": second.incarnation}
