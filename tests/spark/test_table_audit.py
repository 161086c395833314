"""`headrace audit --tables` on a real API server and tables of real sinks: it reports each fault and no false one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Connection, Delete, delete
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.client.pipeline import PipelineClient
from headrace.core.ranges import Ranges, numbers_of
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, run_id
from headrace.pipeline.runs.slices import Slice
from headrace.pipeline.table_audit import MAX_RANGES
from headrace.pipeline.tables.sink import TableSink
from headrace.pipeline.tables.sinks import open_sinks
from headrace.pipeline_declaration import TableFormat
from headrace.project import Project, load_project
from headrace.store.tables.pipelines import run_totals, runs
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor, ScopeReport
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetterSelection
from headrace.wire.pipelines.plans import Plan, PlannedRun
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.pipelines.scope_audit import TablesAudit
from headrace.wire.pipelines.scope_leases import ScopeLease
from support.pipelines.kit import KEY, Api, leg, until
from support.pipelines.run import running, table
from support.processes.calls import acquire_scope
from support.processes.store import registration

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark-tables")]

PROJECT = """
from headrace import Directory, Project

project = Project("flights")
for name in ("legs.a", "legs.b"):
    project.watch(name, Directory("feed"))

@project.pipeline(on="legs.*", table="legs", payload="n long")
def legs(events):
    return events

@project.pipeline(on="legs.*", table="delays", format="delta", payload="n long")
def delays(events):
    return events

@project.pipeline(on="legs.b", payload="n long")
def notes(events):
    pass
"""


def packed(seqs: Ranges) -> bytes:
    numbers = numbers_of(seqs)
    return Slice(numbers, numbers, np.zeros(len(numbers), dtype=np.int8)).pack()


@dataclass
class Driver:
    """What a driver does, step by step: plans, tables, reports."""

    api: Api
    home: Path
    spark: SparkSession
    client: PipelineClient
    lease: ScopeLease
    project: Project
    batch: int = 0

    @property
    def tables(self) -> Path:
        return self.home / "tables"

    def plan(self, cursor: int, *planned: tuple[str, Ranges, str], **cursor_of: Any) -> list[tuple[str, Ranges, str]]:
        """Store the plan of a batch with runs (pipeline, seqs, part), and return them."""
        self.batch += 1
        made = [
            PlannedRun(
                number=number,
                pipeline=name,
                part=part,
                events=sum(last - first + 1 for first, last in seqs),
                first=seqs[0][0],
                last=seqs[-1][1],
                slice=number,
            )
            for number, (name, seqs, part) in enumerate(planned)
        ]
        plan = Plan(
            epoch=self.lease.epoch,
            cursor=Cursor(cursor=cursor, batch=self.batch, **cursor_of),
            runs=made,
            slices=[packed(seqs) for _, seqs, _ in planned],
        )
        self.client.plan("flights", plan)
        return list(planned)

    def store(self, name: str, seqs: Ranges, part: str = "", *, batch: int | None = None, attempt: int = 1) -> int | None:
        pipeline = self.project.pipelines[name]
        if pipeline.table is None:
            return None
        batch = batch or self.batch
        count = sum(last - first + 1 for first, last in seqs)
        made = Attempt(f"{seqs}", attempt, self._id(name, part, batch, attempt))
        return self.sink(pipeline.format).store(RunKey(pipeline.table, name, batch, part), made, self.spark.range(count), count)

    def sink(self, format: TableFormat) -> TableSink:
        origin = Origin(self.lease.log, "flights", self.lease.incarnation)
        return open_sinks(self.project.pipelines.values(), self.tables, origin)[format]

    def report(self, number: int, name: str, seqs: Ranges, part: str, rows: int | None, *, attempt: int = 1, **other: Any) -> None:
        now = datetime.now(UTC)
        given: dict[str, Any] = {
            "run_id": self._id(name, part, self.batch, attempt),
            "pipeline": name,
            "scope": "flights",
            "batch": self.batch,
            "attempt": attempt,
            "state": "succeeded",
            "started": now,
            "finished": now,
            "events": sum(last - first + 1 for first, last in seqs),
            "rows": rows,
            "seqs": seqs,
            "number": number,
        }
        self.client.report([RunReport(**(given | other))])

    def run(self, cursor: int, *planned: tuple[str, Ranges, str], **cursor_of: Any) -> None:
        """Plan a batch, and let each of its runs succeed."""
        for number, (name, seqs, part) in enumerate(self.plan(cursor, *planned, **cursor_of)):
            self.report(number, name, seqs, part, self.store(name, seqs, part))

    def _id(self, name: str, part: str, batch: int, attempt: int) -> str:
        return run_id(self.lease.incarnation, f"{name}/{part}" if part else name, batch, attempt)


@pytest.fixture
def driver(api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Return a driver of a scope with 40 events, of which legs.b fires on each fourth; the first 30 are in runs of three batches."""
    (home / "project.py").write_text(PROJECT)
    monkeypatch.chdir(home)
    for name, value in {"API_URL": api.url, "KEY": KEY, "HOME": str(home), "PROJECT": str(home / "project.py")}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    triggers = api.triggers("legs.a", "legs.b")
    with PipelineClient(api.url, key=KEY) as client:
        client.register(registration("pipeline"))
        lease = acquire_scope(client, "flights")
        api.feed(leg(f"{n}", triggers["legs.a"], *([triggers["legs.b"]] if n % 4 == 0 else []), n=n) for n in range(1, 41))
        made = Driver(api, home, spark, client, lease, load_project(home / "project.py"))
        for first in (1, 11, 21):
            last = first + 9
            middle = [(first, first + 4)], [(first + 5, last)]
            fourths = [(n, n) for n in range(first, last + 1) if n % 4 == 0]
            made.run(last, ("legs", middle[0], ""), ("legs", middle[1], "1"), ("delays", [(first, last)], ""), ("notes", fourths, ""))
        yield made


def audited(driver: Driver, *more: str) -> TablesAudit:
    ran = CliRunner().invoke(app, ["audit", "--tables", str(driver.tables), "--json", *more])
    assert ran.exit_code in (0, 1), (ran.output, ran.exception)
    found = TablesAudit.model_validate_json(ran.stdout)
    assert ran.exit_code == (0 if found.clean else 1)
    return found


def problems(driver: Driver, *more: str) -> list[tuple[str, str]]:
    return [(problem.kind, problem.what) for problem in audited(driver, *more).problems]


def change(api: Api, *statements: Delete) -> None:
    """Change the database behind the API."""

    def execute(connection: Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    api.store.write(execute)


def files(driver: Driver, table: str = "legs") -> Sequence[Path]:
    return sorted((driver.tables / table).glob("*.parquet"))


def test_an_audit_of_complete_tables_is_clean(driver: Driver) -> None:
    ran = CliRunner().invoke(app, ["audit", "--tables", "tables"])
    assert ran.exit_code == 0, (ran.output, ran.exception)
    assert "events 1 to 30 checked" in ran.stdout
    assert "Clean: each run is in its table once" in ran.stdout
    found = audited(driver)
    assert (found.runs, found.first, found.last) == (12, 1, 30)
    assert [(one.table, one.entries, one.matched, one.rows) for one in found.tables] == [("delays", 3, 3, 30), ("legs", 6, 6, 30)]
    events = [(one.pipeline, one.events, one.succeeded, one.missing) for one in found.pipelines]
    assert events == [("legs", 30, 30, 0), ("delays", 30, 30, 0), ("notes", 7, 7, 0)]


def test_a_deleted_file_is_reported_with_its_run(driver: Driver) -> None:
    files(driver)[2].unlink()
    [(kind, what)] = problems(driver)
    assert kind == "missing"
    assert "No table has the 5 rows of the run" in what
    assert "batch 2 of the pipeline 'legs'" in what
    ran = CliRunner().invoke(app, ["audit", "--tables", "tables"])
    assert ran.exit_code == 1
    assert "not clean: No table has" in ran.stderr


def test_a_deleted_table_is_reported_as_all_its_runs(driver: Driver) -> None:
    shutil.rmtree(driver.tables / "delays")
    assert [kind for kind, _ in problems(driver)] == ["missing"] * 3


def test_a_duplicated_file_is_reported_in_any_table(driver: Driver) -> None:
    first = files(driver)[0]
    shutil.copy(first, first.with_name("copy.parquet"))
    (driver.tables / "other" / "part=1").mkdir(parents=True)
    shutil.copy(first, driver.tables / "other" / "part=1" / "again.parquet")
    found = problems(driver)
    assert [kind for kind, _ in found] == ["doubled"] * 2
    assert all("is in the tables twice" in what for _, what in found)
    assert "again.parquet" in found[1][1]


def test_a_foreign_file_is_reported(driver: Driver) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), driver.tables / "legs" / "mine.parquet")
    pq.write_table(pa.table({"id": [1]}), driver.tables / "legs" / "_hidden.parquet")
    from deltalake import write_deltalake

    write_deltalake(driver.tables / "delays", pa.table({"id": [1, 2, 3]}), mode="append")
    found = problems(driver)
    assert [kind for kind, _ in found] == ["foreign"] * 2
    assert "version 4 of the table 'delays': its 3 rows" in found[0][1]
    assert "mine.parquet: its 2 rows" in found[1][1]


@pytest.mark.parametrize("keep", [0, 3, -4])
def test_a_truncated_file_is_reported_with_its_run(driver: Driver, keep: int) -> None:
    path = files(driver)[0]
    path.write_bytes(path.read_bytes()[:keep])
    found = problems(driver)
    assert [kind for kind, _ in found] == ["unreadable", "missing"]
    assert str(path) in found[0][1]


def test_a_file_with_other_rows_is_reported(driver: Driver) -> None:
    path = files(driver)[0]
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    [(kind, what)] = problems(driver)
    assert kind == "different"
    assert "has 4 rows, and the run" in what


def test_a_lost_file_or_commit_of_a_delta_table_is_reported(driver: Driver) -> None:
    data = min((driver.tables / "delays").glob("*.parquet"))
    data.unlink()
    [(kind, what)] = problems(driver)
    assert kind == "missing"
    assert data.name in what
    log = driver.tables / "delays" / "_delta_log"
    (log / f"{2:020}.json").write_text('{"add": ')
    assert [kind for kind, _ in problems(driver)][:2] == ["unreadable", "missing"]
    (log / f"{2:020}.json").unlink()
    assert ("unreadable", "The log of the table 'delays' has no version 2.") in problems(driver)


def test_an_optimized_delta_table_is_clean(driver: Driver) -> None:
    from deltalake import DeltaTable

    table = DeltaTable(driver.tables / "delays")
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert audited(driver).clean


def test_runs_older_than_the_history_of_a_delta_table_are_counted_as_unverified(driver: Driver) -> None:
    from deltalake import DeltaTable

    driver.run(31, ("delays", [(31, 31)], ""), ("legs", [(31, 31)], ""))
    DeltaTable(driver.tables / "delays").create_checkpoint()
    for version in range(4):
        (driver.tables / "delays" / "_delta_log" / f"{version:020}.json").unlink()
    found = audited(driver)
    assert (found.clean, found.unverified) == (True, 3)


def test_a_run_missing_in_the_database_is_reported_with_its_file_and_events(driver: Driver) -> None:
    lost = driver._id("legs", "1", 2, 1)
    change(driver.api, delete(runs).where(runs.c.run_id == lost), delete(run_totals))
    found = problems(driver)
    assert [kind for kind, _ in found] == ["unknown", "missing"]
    assert lost in found[0][1]
    assert found[1][1] == "5 events (16-20) are in no run of the pipeline 'legs'."


def test_an_event_in_no_run_is_reported(driver: Driver) -> None:
    driver.run(40, ("legs", [(31, 34), (36, 40)], ""), ("delays", [(31, 40)], ""), ("notes", [(32, 32), (36, 36)], ""))
    found = problems(driver)
    assert found == [
        ("missing", "The event 35 is in no run of the pipeline 'legs'."),
        ("missing", "The event 40 is in no run of the pipeline 'notes'."),
    ]
    assert problems(driver, "--from", "36") == found[1:]


def test_an_event_in_two_runs_is_reported(driver: Driver) -> None:
    driver.run(32, ("legs", [(30, 32)], ""), ("delays", [(31, 32)], ""), ("notes", [(32, 32)], ""))
    assert problems(driver) == [("doubled", "The event 30 is in two runs or more of the pipeline 'legs'.")]


def test_waiting_held_and_open_events_are_not_missing(driver: Driver) -> None:
    driver.run(34, ("legs", [(31, 32)], ""), ("delays", [(31, 31)], ""), ("notes", [(32, 32)], ""), waiting=2, report=ScopeReport(held=1))
    found = audited(driver)
    assert (found.clean, found.exact) == (True, False)
    assert [(one.pipeline, one.pending) for one in found.pipelines] == [("legs", 2), ("delays", 3), ("notes", 0)]
    driver.plan(38, ("legs", [(33, 38)], ""), ("delays", [(32, 37)], ""), ("notes", [(36, 36)], ""), waiting=1)
    driver.store("legs", [(33, 38)])  # its driver dies before it reports the run
    found = audited(driver)
    assert found.clean
    assert [(one.pipeline, one.open, one.pending) for one in found.pipelines] == [("legs", 6, 0), ("delays", 6, 1), ("notes", 1, 0)]
    assert {one.table: one.open for one in found.tables} == {"legs": 1, "delays": 0}
    driver.store("legs", [(33, 38)], "1")
    assert [kind for kind, _ in problems(driver)] == ["unknown"]


def test_events_of_dead_letters_are_accounted_for_in_any_state(driver: Driver) -> None:
    for number, (name, seqs, part) in enumerate(
        driver.plan(32, ("legs", [(31, 32)], ""), ("delays", [(31, 32)], ""), ("notes", [(32, 32)], ""))
    ):
        failed: dict[str, Any] = {"state": "failed", "error": "boom", "dead_letter": f"letter-{name}"} if name != "notes" else {}
        driver.report(number, name, seqs, part, None, **failed)
    found = audited(driver)
    assert found.clean
    assert [one.dead_lettered for one in found.pipelines] == [2, 2, 0]
    driver.api.store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(ids=["letter-legs"]))
    driver.api.store.pipeline_dead_letters.act("discard", PipelineDeadLetterSelection(ids=["letter-delays"]))
    assert audited(driver).clean


def test_rows_of_an_earlier_attempt_match_the_run(driver: Driver) -> None:
    driver.plan(32, ("legs", [(31, 32)], "x"), ("delays", [(31, 32)], ""), ("notes", [(32, 32)], ""))
    assert driver.store("legs", [(31, 32)], "x", attempt=1) == 2
    driver.report(0, "legs", [(31, 32)], "x", 2, attempt=2)
    driver.report(1, "delays", [(31, 32)], "", driver.store("delays", [(31, 32)]))
    driver.report(2, "notes", [(32, 32)], "", None)
    assert audited(driver).clean


def test_files_of_other_scopes_and_incarnations_are_counted_separately(driver: Driver) -> None:
    for other in ({"scope": "trains"}, {"incarnation": "0" * 32}):
        origin = {"log": driver.lease.log, "scope": "flights", "incarnation": driver.lease.incarnation} | other
        sinks = open_sinks(driver.project.pipelines.values(), driver.tables, Origin(**origin))
        sinks["parquet"].store(RunKey("legs", "legs", 1), Attempt("d", 1, "id"), driver.spark.range(1), 1)
        sinks["delta"].store(RunKey("delays", "delays", 1), Attempt("d", 1, "id"), driver.spark.range(1), 1)
    found = audited(driver)
    assert found.clean
    assert [(one.table, one.other_scopes, one.older) for one in found.tables] == [("delays", 1, 1), ("legs", 1, 1)]


def test_a_reset_scope_is_audited_from_its_new_beginning(driver: Driver) -> None:
    driver.client.complete(CompleteJob(state="succeeded"))
    driver.api.store.scopes.reset("flights", 21)
    driver.client.register(registration("pipeline"))
    driver.lease, driver.batch = acquire_scope(driver.client, "flights"), 0
    driver.run(40, ("legs", [(21, 39)], ""), ("delays", [(21, 40)], ""), ("notes", [(n, n) for n in range(24, 41, 4)], ""))
    found = audited(driver)
    assert (found.first, found.last, found.runs) == (21, 40, 15)
    assert [problem.what for problem in found.problems] == ["The event 40 is in no run of the pipeline 'legs'."]


def test_files_of_pruned_runs_are_counted_and_not_checked(driver: Driver) -> None:
    change(driver.api, delete(runs).where(runs.c.batch < 3))
    found = audited(driver)
    assert found.clean
    assert found.first == 41, "all events came before the oldest run that is kept"
    assert {one.table: (one.matched, one.older) for one in found.tables} == {"legs": (2, 4), "delays": (1, 2)}


def test_an_audit_of_a_missing_folder_or_scope_is_an_error(driver: Driver) -> None:
    ran = CliRunner().invoke(app, ["audit", "--tables", str(driver.home / "none")])
    assert "There is no folder" in str(ran.exception)
    (driver.home / "project.py").write_text(PROJECT.replace('"flights"', '"trains"'))
    ran = CliRunner().invoke(app, ["audit", "--tables", str(driver.tables)])
    assert "No pipeline has a scope 'trains'" in str(ran.exception)


WINDOWED = """
from headrace import Directory, Project, Window

project = Project("flights")
project.watch("legs.a", Directory("feed"))

@project.pipeline(on="legs.*", table="legs", payload="n long")
def legs(events):
    return events.select("id")

@project.pipeline(on="legs.*", table="windows", payload="n long", batch=Window(size=10, seconds=3600))
def windows(events):
    return events.select("id")
"""


def test_the_audit_after_a_real_driver_accounts_for_waiting_and_held_events(
    api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "project.py").write_text(WINDOWED)
    monkeypatch.chdir(home)
    monkeypatch.setenv("HEADRACE_API_URL", api.url)
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    # Each fifth event follows one that does not come. Of the other 20 the last window lacks one or more.
    api.feed(leg(f"{n}", trigger, follows=f"never-{n}" if n % 5 == 0 else None, n=n) for n in range(1, 29))
    with running(load_project(home / "project.py"), options, spark) as run:
        until(lambda: len(table(options, "legs")) == 23 and len(table(options, "windows")) == 20, "all is stored", run.alive)

    def look() -> TablesAudit:
        ran = CliRunner().invoke(app, ["audit", "--tables", "tables", "--json"])
        assert ran.exit_code in (0, 1), (ran.output, ran.exception)
        return TablesAudit.model_validate_json(ran.stdout)

    found = look()
    assert (found.clean, found.exact) == (True, True)
    assert [(one.pipeline, one.events, one.succeeded, one.pending) for one in found.pipelines] == [
        ("legs", 28, 23, 5),
        ("windows", 28, 20, 8),
    ]

    lost = next(run for run in api.runs() if run.pipeline == "windows")
    change(api, delete(runs).where(runs.c.run_id == lost.run_id), delete(run_totals))
    wanted = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in lost.seqs[:MAX_RANGES])
    [problem] = [problem for problem in look().problems if problem.kind == "missing"]
    assert problem.what.startswith(f"10 events ({wanted}"), "none of them can be one of the 8 that wait or are held"
    assert problem.what.endswith("are in no run of the pipeline 'windows'.")


MENDED = """
from pathlib import Path

from headrace import Directory, Project

project = Project("flights")
for name in ("legs.a", "legs.b"):
    project.watch(name, Directory("feed"))

@project.pipeline(on="legs.*", table="legs", payload="n long", attempts=1)
def legs(events):
    if events.where("payload.n = 3").count() and not Path("mended").exists():
        raise ValueError("boom")
    return events.select("id")

@project.pipeline(on="legs.b", table="late", format="delta", payload="n long", batch="each")
def late(events):
    return events.select("id")
"""


def test_the_audit_is_clean_after_a_redrive_and_a_late_firing(
    api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "project.py").write_text(MENDED)
    monkeypatch.chdir(home)
    monkeypatch.setenv("HEADRACE_API_URL", api.url)
    triggers = api.triggers("legs.a", "legs.b")
    options = api.options(home, max_rows=2)
    project = load_project(home / "project.py")

    def look() -> TablesAudit:
        ran = CliRunner().invoke(app, ["audit", "--tables", "tables", "--json"])
        assert ran.exit_code in (0, 1), (ran.output, ran.exception)
        return TablesAudit.model_validate_json(ran.stdout)

    def is_stored(*ids: str) -> bool:
        return sorted(row["id"] for row in table(options, "legs")) == sorted(ids)

    with running(project, options, spark) as run:
        api.feed(leg(f"{n}", triggers["legs.a"], n=n) for n in range(1, 7))
        until(lambda: is_stored("1", "2", "4", "5", "6"), "the others are stored", run.alive)
        until(lambda: len(api.store.pipeline_dead_letters.page(limit=9).dead_letters) == 1, "there is a dead letter", run.alive)
        api.feed(leg(f"{n}", triggers["legs.b"], n=n) for n in (2, 4))  # copies, on which another trigger fires
        until(lambda: sum(one.pipeline == "late" and one.state == "succeeded" for one in api.runs()) == 2, "late ones ran", run.alive)
    found = look()
    assert [problem.what for problem in found.problems] == []
    assert [(one.pipeline, one.succeeded, one.dead_lettered) for one in found.pipelines] == [("legs", 5, 1), ("late", 2, 0)]
    (home / "mended").touch()
    with running(project, options, spark) as run:
        api.store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(pipeline="legs"))
        until(lambda: is_stored("1", "2", "3", "4", "5", "6"), "all is stored", run.alive)
        until(lambda: not api.store.pipeline_dead_letters.page(limit=9).dead_letters, "the letter is gone", run.alive)
    found = look()
    assert [problem.what for problem in found.problems] == []
    assert [(one.pipeline, one.succeeded, one.dead_lettered) for one in found.pipelines] == [("legs", 6, 0), ("late", 2, 0)]
    assert {one.table: one.matched for one in found.tables} == {"legs": 4, "late": 2}
