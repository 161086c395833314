"""From the first schema to custody and back, with data in."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import delete, inspect

import headrace.store.tables.control
import headrace.store.tables.custody
import headrace.store.tables.log
import headrace.store.tables.ordering
import headrace.store.tables.pipelines
import headrace.store.tables.secrets
import headrace.store.tables.task_runs
import headrace.store.tables.webhooks  # noqa: F401
from headrace.errors import SchemaError
from headrace.store import Liveness, Store, open_store
from headrace.store.db.schema import alembic_config
from headrace.store.dialects.engines import engines, parsed
from headrace.store.pipelines.run_totals import run_totals
from headrace.store.queries.events import dead_letter_page
from headrace.store.queries.pipeline_runs import runs_of_event
from headrace.store.queries.triggers import trigger_page
from headrace.store.tables.base import metadata
from headrace.store.tables.control import jobs, triggers
from headrace.store.tables.custody import lanes
from headrace.store.tables.pipelines import runs
from headrace.wire.control.jobs import Heartbeat
from headrace.wire.control.streams import StreamReport
from headrace.wire.control.triggers import TriggerFailure
from headrace.wire.custody.events import Cursor
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.task_runs import AwaitedEvent, AwaitedTrigger, StartRun, Waiting
from support.pipelines.plans import plan
from support.processes.postgres import database_of, programs
from support.processes.store import DATABASES, SECOND, Holder, TurnedClock, database_url, event, holder, letter, registration
from support.sources.custody import answered, books, counts, keep, positions, receipt, record, settle, some, spill


def opened(kind: str, folder: Path, clock: TurnedClock | None = None) -> Store:
    clock = clock or TurnedClock()
    return open_store(database_url(kind, folder), migrate=True, clock=clock, liveness=Liveness(ticks=clock.ticks))


def numbers(kind: str, folder: Path, query: str) -> list[Any]:
    """Return what a query of one column finds in the database as it is."""
    readers, writer = engines(parsed(database_url(kind, folder)))
    with readers.connect() as connection:
        found = connection.exec_driver_sql(query).scalars().all()
    readers.dispose()
    writer.dispose()
    return list(found)


def move(kind: str, folder: Path, revision: str) -> None:
    readers, writer = engines(parsed(database_url(kind, folder)))
    try:
        with writer.begin() as connection:
            down = revision < str(MigrationContext.configure(connection).get_current_revision())
            (command.downgrade if down else command.upgrade)(alembic_config(connection), revision)
    finally:
        readers.dispose()
        writer.dispose()


def dumped(kind: str, folder: Path) -> Path:
    """Copy the database as the guides say; return the folder that stands for the copy."""
    copy = folder / "copy"
    copy.mkdir()
    if kind == "sqlite":
        with closing(sqlite3.connect(folder / "headrace.db")) as source, closing(sqlite3.connect(copy / "headrace.db")) as target:
            source.backup(target)
        return copy
    source_url, target_url = (url.replace("+psycopg", "") for url in (database_url(kind, folder), database_of(copy, empty=True)))
    dump = copy / "dump"
    subprocess.run([programs() / "pg_dump", "--format=custom", f"--file={dump}", source_url], check=True)
    subprocess.run([programs() / "pg_restore", "--no-owner", f"--dbname={target_url}", dump], check=True)
    return copy


def run(run_id: str, *seqs: tuple[int, int]) -> RunReport:
    started = datetime(2026, 1, 1, tzinfo=UTC)
    return RunReport(run_id=run_id, pipeline="p", scope="s", batch=1, state="succeeded", started=started, seqs=list(seqs))


@pytest.mark.parametrize("kind", DATABASES)
def test_scopes_of_an_older_schema_get_an_incarnation_each(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path)
    jobs = [store.jobs.register(registration("pipeline")).id for _ in range(3)]
    before = [store.scope_leases.acquire(job, f"s{job}") for job in jobs]
    for batch in range(1, 8):
        store.plans.store(jobs[0], f"s{jobs[0]}", plan(batch, cursor=Cursor(cursor=0, batch=batch)))
    store.close()
    move(kind, tmp_path, "r0024")
    store = opened(kind, tmp_path)
    after = [store.scope_leases.acquire(job, f"s{job}") for job in jobs]
    assert len({one.incarnation for one in before + after}) == 6
    assert [(one.begin_seq, one.begin_again, one.cursor.batch) for one in after] == [(0, 0, 7), (0, 0, 0), (0, 0, 0)]
    store.close()


def filled(kind: str, folder: Path) -> Holder:
    """A database of the first schema with an event, a dead letter and a stream's report in it; its store is closed."""
    store = opened(kind, folder)
    owner = holder(store, "first")
    owner.append(event("a"), dead_letters=[letter("x", lane="a.jsonl", position=3)])
    store.jobs.heartbeat(owner.job_id, Heartbeat(streams=[StreamReport(stream="folder", state="polling", read=5)]))
    owner.store.triggers.failure(owner.job_id, 1, TriggerFailure(epoch=1, type="ValueError", message="no", traceback=["line"]))
    owner.store.runs.report(owner.job_id, [run("r", (1, 5), (9, 9)), run("none")])
    store.close()
    move(kind, folder, "r0001")
    return owner


@pytest.mark.parametrize("kind", DATABASES)
def test_a_database_of_the_first_schema_goes_on_with_what_it_has(kind: str, tmp_path: Path) -> None:
    owner = filled(kind, tmp_path)
    store = owner.store = opened(kind, tmp_path)
    with store.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata) == []
        assert [one.state for one in dead_letter_page(connection, before=None, limit=9).dead_letters] == ["open"]
        (shown,) = trigger_page(connection, store.now(), {}, after=None, limit=9).triggers
        assert (shown.fired, shown.rejected, shown.backlog, shown.spilled) == (1, 1, 0, 0)
        assert shown.failure == "ValueError: no"
        assert [[one.run_id for one in runs_of_event(connection, seq, limit=9)] for seq in (0, 5, 7, 9)] == [[], ["r"], [], ["r"]]
    assert owner.append(event("a"), event("b")) == ["duplicate", "stored"]
    assert keep(owner, spill(4)) == ["stored"]
    record(owner, receipt(None, 4, 5, answered(1, fired=1, spilled=1, dead_lettered=1), owed=(1,)))
    assert store.dead_letters.redrive(some("x")).count == 1
    assert positions(owner) == [4, 3]
    settle(owner)
    assert counts(store) == {"read": 5, "fired": 3, "filtered": 2, "spilled": 2, "settled": 2}
    store.close()


@pytest.mark.parametrize("kind", DATABASES)
def test_going_back_keeps_the_log_the_letters_and_the_counters(kind: str, tmp_path: Path) -> None:
    filled(kind, tmp_path)
    readers, writer = engines(parsed(database_url(kind, tmp_path)))
    with readers.connect() as connection:
        there = inspect(connection)
        assert not {"backlog", "spills", "lanes", "custody", "crews", "crew_reads", "custody_problems"} & set(there.get_table_names())
        assert "state" not in {column["name"] for column in there.get_columns("dead_letters")}
        assert connection.exec_driver_sql("SELECT id FROM events").scalars().all() == ["a"]
        assert connection.exec_driver_sql("SELECT id, position FROM dead_letters").all() == [("x", 3)]
        assert connection.exec_driver_sql("SELECT read FROM stream_reports").scalars().all() == [5]
        assert connection.exec_driver_sql("SELECT fired, rejected FROM triggers").all() == [(1, 1)]
        assert json.loads(connection.exec_driver_sql("SELECT failure FROM triggers").scalar_one())["kind"] == "ValueError"
    readers.dispose()
    writer.dispose()


@pytest.mark.parametrize("kind", DATABASES)
def test_ids_go_on_from_the_highest_there_and_back(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path)
    owner = holder(store, "first", "second")
    owner.append(event("a"), event("b"))
    record(owner, receipt(None, 1, 2, answered(1, fired=1), owed=(1, 2)))
    before = books(store)
    store.close()
    rows = {table.name: numbers(kind, tmp_path, f"SELECT id FROM {table.name} ORDER BY id") for table in (jobs, triggers, lanes)}
    assert rows == {"jobs": [1], "triggers": [1, 2], "lanes": [1]}
    move(kind, tmp_path, "r0028")
    assert rows == {name: numbers(kind, tmp_path, f"SELECT id FROM {name} ORDER BY id") for name in rows}
    store = owner.store = opened(kind, tmp_path)
    with store.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata) == []
    assert books(store) == before
    assert owner.append(event("b"), event("c", 2)) == ["duplicate", "stored"]
    store.tidy(lambda connection: connection.execute(delete(jobs)).rowcount + connection.execute(delete(triggers)).rowcount)
    assert store.jobs.register(registration()).id == 2
    store.close()
    store = opened(kind, dumped(kind, tmp_path))
    store.tidy(lambda connection: connection.execute(delete(jobs)).rowcount)
    assert sorted(holder(store, "first", "second").epochs) == [3, 4]
    assert numbers(kind, tmp_path / "copy", "SELECT id FROM jobs") == [3]
    store.close()


def test_no_migration_loses_the_autoincrement_of_a_table(tmp_path: Path) -> None:
    opened("sqlite", tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "headrace.db")) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'").fetchall()
    assert {name for (name,) in found} == {table.name for table in metadata.sorted_tables if table.autoincrement_column is not None}


@pytest.mark.parametrize("kind", DATABASES)
def test_going_back_is_refused_while_anything_waits(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path)
    owner = holder(store, "first")
    keep(owner, spill(1))
    store.close()
    with pytest.raises(SchemaError, match="1 raw events wait") as refused:
        move(kind, tmp_path, "r0001")
    assert "until the backlogs are empty" in (refused.value.hint or "")
    store = owner.store = opened(kind, tmp_path)
    assert positions(owner) == [1], "the refusal changed nothing"
    assert books(store).clean
    store.close()


@pytest.mark.parametrize("kind", DATABASES)
def test_totals_of_runs_are_the_same_whether_they_are_counted_or_kept(kind: str, tmp_path: Path) -> None:
    def totals(store: Store) -> list[tuple[int, int, int, int]]:
        with store.reading() as connection:
            return [(one.runs, one.failed, one.events, one.rows) for one in run_totals(connection).values()]

    store = opened(kind, tmp_path)
    owner = holder(store, "first")
    store.runs.report(owner.job_id, [run("a", (1, 5)).model_copy(update={"events": 5, "rows": 7}), run("b")])
    store.runs.report(owner.job_id, [run("b").model_copy(update={"state": "failed", "attempt": 2})])
    store.runs.report(owner.job_id, [run("c").model_copy(update={"events": 2, "pipeline": "gone"})])
    store.tidy(lambda connection: connection.execute(delete(runs).where(runs.c.run_id.in_(["a", "c"]))).rowcount)
    expected = [(2, 1, 5, 7), (1, 0, 2, 0)]
    assert totals(store) == expected
    store.close()
    move(kind, tmp_path, "r0012")
    readers, writer = engines(parsed(database_url(kind, tmp_path)))
    with readers.connect() as connection:
        kept = connection.exec_driver_sql('SELECT runs, failed, events, "rows" FROM forgotten_runs ORDER BY pipeline DESC').all()
    readers.dispose()
    writer.dispose()
    assert [tuple(row) for row in kept] == [(1, 0, 5, 7), (1, 0, 2, 0)]
    store = opened(kind, tmp_path)
    assert sorted(totals(store)) == sorted(expected)
    with store.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata) == []
    store.close()


@pytest.mark.parametrize("kind", DATABASES)
def test_timeouts_of_task_runs_go_on_from_the_wall_clock_and_back(kind: str, tmp_path: Path) -> None:
    clock = TurnedClock()

    def timeouts() -> list[int | None]:
        return numbers(kind, tmp_path, "SELECT timeout_at FROM deferred_runs ORDER BY run_id")

    store = opened(kind, tmp_path, clock)
    clock.turn(100)
    for run_id, timeout in (("a", 600), ("b", None)):
        waiting = Waiting(trigger=AwaitedTrigger(classpath="a.B", kwargs={}), timeout=timeout)
        store.task_runs.start("flights", StartRun(run_id=run_id, task="t", waiting=waiting))
    store.close()
    move(kind, tmp_path, "r0021")
    assert timeouts() == [clock.now + 600 * SECOND, None]
    store = opened(kind, tmp_path, clock)
    assert timeouts() == [clock.passed + 600 * SECOND, None]
    clock.turn(599)
    store.task_runs.sweep()
    assert store.task_runs.result("a").state == "deferred"
    clock.turn(1)
    store.task_runs.sweep()
    assert store.task_runs.result("a").state == "failed"
    store.close()


@pytest.mark.parametrize("kind", DATABASES)
def test_timeouts_go_on_where_the_database_had_no_age_yet(kind: str, tmp_path: Path) -> None:
    clock = TurnedClock(now=time.time_ns() // 1000)
    store = opened(kind, tmp_path, clock)
    waiting = Waiting(trigger=AwaitedTrigger(classpath="a.B", kwargs={}), timeout=7_200)
    store.task_runs.start("flights", StartRun(run_id="a", task="t", waiting=waiting))
    store.close()
    move(kind, tmp_path, "r0012")
    store = opened(kind, tmp_path, clock)
    clock.turn(3_600)
    store.task_runs.sweep()
    assert store.task_runs.result("a").state == "deferred"
    clock.turn(3_700)
    store.task_runs.sweep()
    assert store.task_runs.result("a").state == "failed"
    store.close()


@pytest.mark.parametrize("revision", ["r0022", "r0012"])
@pytest.mark.parametrize("kind", DATABASES)
def test_waits_for_leaders_go_on_from_the_wall_clock_and_back(kind: str, revision: str, tmp_path: Path) -> None:
    clock = TurnedClock(now=time.time_ns() // 1000)

    def moments() -> list[int | None]:
        return numbers(kind, tmp_path, "SELECT since FROM ordering_events UNION ALL SELECT at FROM ordering_given_up")

    def handed(store: Store) -> list[tuple[str, str | None]]:
        taken = store.awaited_events.take()
        assert taken is not None
        store.awaited_events.hand(taken.claims)
        return [(claim.event.id, claim.mark) for claim in taken.claims]

    store = opened(kind, tmp_path, clock)
    owner = holder(store, "first")
    for id in ("lost", "waits", "late"):
        waiting = Waiting(event=AwaitedEvent(on=["*"], id=id))
        store.task_runs.start("flights", StartRun(run_id=id, task="t", waiting=waiting))
    owner.append(event("lost", follows="late"))
    assert handed(store) == []
    clock.turn(900)
    assert handed(store) == [("lost", "lost")]
    owner.append(event("waits", follows="never"))
    assert handed(store) == []
    assert moments() == [clock.passed, clock.passed]
    store.close()
    move(kind, tmp_path, revision)
    if revision == "r0022":
        assert moments() == [clock.now, clock.now]
    clock.turn(60)
    store = opened(kind, tmp_path, clock)
    clock.turn(780)
    assert handed(store) == []
    clock.turn(120)
    assert handed(store) == [("waits", "lost")]
    owner.store = store
    owner.append(event("late"))
    assert handed(store) == [("late", "late")]
    store.close()


@pytest.mark.parametrize("kind", DATABASES)
def test_runs_that_wait_by_patterns_are_found_there_and_back(kind: str, tmp_path: Path) -> None:
    query = "SELECT kind || ' ' || term AS found FROM awaited_terms ORDER BY kind, term"
    with closing(opened(kind, tmp_path)) as store:
        waiting = Waiting(event=AwaitedEvent(on=["le[gx]s", "le*", "*", "no?"]))
        store.task_runs.start("flights", StartRun(run_id="one", task="t", waiting=waiting))
    move(kind, tmp_path, "r0031")
    assert set(numbers(kind, tmp_path, query)) == {f"glob flights/{pattern}" for pattern in ("le[gx]s", "le*", "*", "no?")}
    move(kind, tmp_path, "r0032")
    assert set(numbers(kind, tmp_path, query)) == {"prefix flights/", "prefix flights/le", "prefix flights/no"}
    with closing(opened(kind, tmp_path)) as store:
        owner = holder(store, "legs")
        owner.append(event("a", *owner.epochs))
        found = store.awaited_events.take()
        assert found is not None
        assert store.awaited_events.hand(found.claims) == 1
