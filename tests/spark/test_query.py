"""The real pipeline process, from the real API's log to Parquet."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from sqlalchemy import func, select

from headrace.core.batching import Window
from headrace.pipeline.schemas import PIPELINE_COLUMNS
from headrace.project import Project
from headrace.store.queries.scopes import waits_of_pipeline
from headrace.store.tables.control import jobs
from headrace.wire.custody.events import EventItem
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetterSelection
from support.pipelines.kit import Api, leg, running_api, until
from support.pipelines.plans import stored_cursor
from support.pipelines.run import files, no_reports, open_runs, running, table, tables_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def ordered_project() -> Project:
    project = Project("flights")

    @project.pipeline(on="legs.*", table="legs")
    def legs(events: DataFrame) -> DataFrame:
        return events.select("position", "mark", "seq", "id", "follows", "payload.n")

    return project


def chains(count: int, length: int, *firings: int) -> list[EventItem]:
    return [
        leg(f"{chain}-{link}", *firings, follows=f"{chain}-{link - 1}" if link else None, n=link)
        for chain in range(count)
        for link in range(length)
    ]


def in_order(rows: list[dict[str, object]]) -> bool:
    place = {row["id"]: row["position"] for row in rows}
    return all(row["follows"] is None or place[row["follows"]] < row["position"] for row in rows)  # type: ignore[operator]


@pytest.mark.slow
def test_shuffled_and_duplicated_events_are_handled_once_and_in_order(api: Api, home: Path, spark: SparkSession) -> None:
    ids = api.triggers("legs.a", "legs.b")
    feed = chains(40, 10, *ids.values())
    feed += random.Random(1).sample(feed, 50)
    random.Random(2).shuffle(feed)
    options = api.options(home, max_rows=100)
    with running(ordered_project(), options, spark) as run:
        api.feed(feed)
        run.until_handled(api, 400)
    rows = table(options, "legs")
    assert sorted(row["position"] for row in rows) == list(range(1, 401))
    assert {row["seq"] for row in rows} == set(range(1, 401))
    assert {row["mark"] for row in rows} == {None}
    assert in_order(rows)
    cursor = stored_cursor(api.store, "flights")
    assert (cursor.ordered, cursor.waiting, cursor.lost, cursor.late, cursor.cycles) == (400, 0, 0, 0, 0)
    assert sum(report.rows or 0 for report in api.runs()) == 400
    assert {report.state for report in api.runs()} == {"succeeded"}
    assert sorted(seq for report in api.runs() for first, last in report.seqs for seq in range(first, last + 1)) == list(range(1, 401))
    assert spark.read.parquet(str(tables_of(options) / "legs")).count() == 400


@pytest.mark.slow
def test_followers_of_a_missing_leader_are_released_as_lost(api: Api, home: Path, spark: SparkSession) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home, lookback=1.0)
    with running(ordered_project(), options, spark) as run:
        api.feed([leg("c", trigger, follows="b", n=3), leg("b", trigger, follows="a", n=2)])
        run.until_told(api, lambda cursor: cursor.ordered == 2)
        api.feed([leg("a", trigger, n=1)])
        run.until_handled(api, 3)
    assert [(row["id"], row["mark"]) for row in table(options, "legs")] == [("b", "lost"), ("c", None), ("a", "late")]
    cursor = stored_cursor(api.store, "flights")
    assert (cursor.waiting, cursor.lost, cursor.late) == (0, 1, 1)


@pytest.mark.slow
def test_waiting_events_survive_a_restart(api: Api, home: Path, spark: SparkSession) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    with running(ordered_project(), options, spark) as run:
        api.feed([leg("b", trigger, follows="a", n=2), leg("x", trigger, n=0)])
        run.until_handled(api, 2)
    assert stored_cursor(api.store, "flights").waiting == 1
    with api.store.reading() as connection:
        waits = waits_of_pipeline(connection, "flights", api.store.now(), after=0, limit=9)
    assert waits is not None
    assert [(wait.id, wait.follows, wait.leader) for wait in waits.waits] == [("b", "a", "missing")]
    with running(ordered_project(), options, spark) as run:
        api.feed([leg("a", trigger, n=1)])
        run.until_handled(api, 3)
    assert [row["id"] for row in table(options, "legs")] == ["x", "a", "b"]
    report = stored_cursor(api.store, "flights").report
    assert report is not None
    assert (sum(report.holds), report.hold_seconds > 0, report.lookback, report.waits) == (1, True, options.lookback, [])


def test_a_run_without_an_outcome_is_repeated_unless_its_table_has_its_rows(
    api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    calls: list[str] = []
    project = ordered_project()

    @project.pipeline(on="legs.*", table="counted", payload="n long")
    def counted(events: DataFrame) -> DataFrame:
        calls.append("counted")
        return events.agg(fn.sum("payload.n").alias("n"))

    options = api.options(home / "one", tables=home / "tables")
    with no_reports(monkeypatch), running(project, options, spark) as run:
        api.feed([leg("b", trigger, follows="a", n=2), leg("x", trigger, n=0), leg("a", trigger, n=1)])
        assert "A run cannot be reported: not now" in str(run.until_failed())
    assert open_runs(api) == 2
    assert [row["id"] for row in table(options, "legs")] == ["a", "x", "b"]
    calls.clear()
    (lost,) = files(options, "counted")
    lost.unlink()  # the driver died between the two pipelines
    elsewhere = api.options(home / "two", tables=home / "tables")
    with running(project, elsewhere, spark) as run:
        run.until_handled(api, 3)
        api.feed([leg("y", trigger, n=5)])
        run.until_handled(api, 4)
    assert [(row["id"], row["position"]) for row in table(options, "legs")] == [("a", 1), ("x", 2), ("b", 3), ("y", 4)]
    assert [row["n"] for row in table(options, "counted")] == [3, 5]
    assert calls == ["counted", "counted"]
    assert {report.state for report in api.runs()} == {"succeeded"}


@pytest.mark.slow
def test_a_slow_or_retrying_pipeline_does_not_delay_others(api: Api, home: Path, spark: SparkSession) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    project = ordered_project()
    going_on = threading.Event()

    @project.pipeline(on="legs.*")
    def slow(events: DataFrame) -> None:
        going_on.wait(60)

    options = api.options(home)
    with running(project, options, spark) as run:
        for number in range(3):
            api.feed([leg(str(number), trigger, n=1)])
            until(lambda count=number: len(table(options, "legs")) == count + 1, "the other pipeline has it", run.alive)  # type: ignore[misc]
        assert open_runs(api) >= 1
        going_on.set()
        run.until_handled(api, 3)
    assert sorted(report.events for report in api.runs() if report.pipeline == "slow") == [1, 1, 1]


@pytest.mark.slow
def test_only_the_event_that_fails_a_pipeline_becomes_a_dead_letter(api: Api, home: Path, spark: SparkSession) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    project = Project("flights")

    @project.pipeline(on="legs.*", table="legs", payload="n long", attempts=1)
    def legs(events: DataFrame) -> DataFrame:
        check = fn.udf(lambda n: 1 // (n - 13), "long")
        return events.select("id", "position", check("payload.n").alias("checked"))

    api.feed([leg(str(number), trigger, n=number) for number in range(40)])
    with running(project, options, spark) as run:
        run.until_handled(api, 40)
        ((name, seqs, attempts, _),) = letters(api)
        assert (name, seqs, attempts) == ("legs", [(14, 14)], 1)
        assert "ZeroDivisionError" in api.store.pipeline_dead_letters.page(limit=1).dead_letters[0].error
    rows = sorted((row["position"], row["id"]) for row in table(options, "legs"))
    order = list(enumerate(sorted(map(str, range(40))), 1))  # they occurred at once, so their ids decide
    assert rows == [(position, id) for position, id in order if id != "13"]
    project = Project("flights")
    project.pipeline(on="legs.*", table="legs", name="legs")(lambda events: events.select("id", "position"))
    with running(project, options, spark) as run:
        api.store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(pipeline="legs"))
        until(lambda: not letters(api), "it was redriven", run.alive)
    assert sorted((row["position"], row["id"]) for row in table(options, "legs")) == order


@pytest.mark.slow
def test_a_run_above_the_memory_limit_becomes_a_dead_letter(
    api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.pipeline.log_reader.MAX_RUN_BYTES", 10)
    monkeypatch.setattr("headrace.pipeline.ordering.recent_events.MAX_RECENT_BYTES", 0)
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    project = ordered_project()
    project.pipeline(on="legs.*", name="windows", batch=Window(2))(lambda events: None)
    with running(project, options, spark) as run:
        for number in range(1, 3):
            api.feed([leg(str(number), trigger, n=number)])
            run.until_handled(api, number)
        assert [letter[:2] for letter in letters(api)] == [("windows", [(1, 2)])]
    assert "The 2 events of one run have more than 0 MiB." in api.store.pipeline_dead_letters.page(limit=1).dead_letters[0].error
    assert len(table(options, "legs")) == 2


@pytest.mark.slow
def test_held_events_of_a_removed_pipeline_become_dead_letters(api: Api, home: Path, spark: SparkSession) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    project = ordered_project()
    project.pipeline(on="legs.*", table="windows", batch=Window(3), name="windows")(lambda events: events.select("id"))
    with running(project, options, spark) as run:
        api.feed([leg("1", trigger, n=1), leg("2", trigger, n=1)])
        run.until_handled(api, 2)
    with running(ordered_project(), options, spark) as run:
        until(lambda: len(letters(api)) == 1, "it is a dead letter", run.alive)
        ((name, seqs, _, state),) = letters(api)
        assert (name, seqs, state) == ("windows", [(1, 2)], "open")
        assert "The project has no pipeline 'windows'" in api.store.pipeline_dead_letters.page(limit=1).dead_letters[0].error
        api.store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(pipeline="windows"))
        until(lambda: letters(api)[0][2:] == (2, "open"), "nobody took it again", run.alive)
    project = ordered_project()
    project.pipeline(on="legs.*", table="windows", name="windows")(lambda events: events.select("id", "position"))
    with running(project, options, spark) as run:
        api.store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(pipeline="windows"))
        until(lambda: letters(api) == [], "it was redriven", run.alive)
    assert [(row["id"], row["position"]) for row in table(options, "windows")] == [("1", 1), ("2", 2)]


def letters(api: Api) -> list[tuple[str, list[tuple[int, int]], int, str]]:
    return [(each.pipeline, each.seqs, each.attempts, each.state) for each in api.store.pipeline_dead_letters.page(limit=9).dead_letters]


@pytest.mark.slow
def test_each_pipeline_gets_the_events_of_its_triggers(api: Api, home: Path, spark: SparkSession) -> None:
    ids = api.triggers("legs.a", "legs.b", "other.c")
    options = api.options(home)
    project = ordered_project()
    got: list[str] = []
    columns: list[str] = []

    @project.pipeline(on="legs.b")
    def only_b(events: DataFrame) -> None:
        columns.extend(events.columns)
        got.extend(row.id for row in events.collect())

    @project.pipeline(on="nothing.*", table="never")
    def never(events: DataFrame) -> DataFrame:
        raise AssertionError("it has no events")

    with running(project, options, spark) as run:
        api.feed(
            [
                leg("1", ids["legs.a"], n=1),
                leg("2", ids["legs.b"], n=1, follows="3"),
                leg("3", ids["other.c"], n=1),
                leg("4", ids["legs.a"], ids["legs.b"], n=1),
            ]
        )
        run.until_handled(api, 4)
    assert got == ["4", "2"]  # all occurred at once: those that follow come after those that do not
    assert [row["id"] for row in table(options, "legs")] == ["1", "4", "2"]
    assert tuple(columns) == PIPELINE_COLUMNS
    assert not files(options, "never")


@pytest.mark.slow
def test_the_driver_waits_for_the_return_of_the_api_server(home: Path, spark: SparkSession) -> None:
    with running_api(home) as first:
        trigger = first.triggers("legs.a")["legs.a"]
        options, port = first.options(home), first.port
        run_context = running(ordered_project(), options, spark)
        run = run_context.__enter__()
        first.feed([leg("a", trigger, n=1)])
        run.until_handled(first, 1)
    with running_api(home, port) as second:
        second.feeders.update(first.feeders)
        second.take_over()
        second.feed([leg("b", trigger, n=1)])
        run.until_handled(second, 2)
        run_context.__exit__(None, None, None)
    assert [row["id"] for row in table(options, "legs")] == ["a", "b"]


@pytest.mark.slow
def test_a_failed_run_becomes_a_dead_letter_and_other_pipelines_continue(api: Api, home: Path, spark: SparkSession) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    project = ordered_project()
    broken = threading.Event()
    broken.set()

    @project.pipeline(on="legs.*", table="sums", payload="n long", attempts=2)
    def sums(events: DataFrame) -> DataFrame:
        if broken.is_set():
            return events.select("payload.nonsense")
        inverse = fn.udf(lambda n: 1 // (n - 1), "long")
        return events.select(inverse("payload.n").alias("n"))

    with running(project, options, spark) as run:
        api.feed([leg("a", trigger, n=1)])
        run.until_handled(api, 1)
        assert letters(api) == [("sums", [(1, 1)], 2, "open")]
        failed = [report for report in api.runs() if report.pipeline == "sums"]
        assert sorted((report.attempt, report.state) for report in failed) == [(1, "failed"), (2, "failed")]
        for said in ("The pipeline 'sums' failed: [FIELD_NOT_FOUND]", 'return events.select("payload.nonsense")', "test_query.py"):
            assert said in (failed[0].error or "")
        assert [row["id"] for row in table(options, "legs")] == ["a"]

        broken.clear()
        again = PipelineDeadLetterSelection(pipeline="sums")
        api.store.pipeline_dead_letters.act("redrive", again)
        until(lambda: letters(api) == [("sums", [(1, 1)], 4, "open")], "it failed again", run.alive)
        error = api.store.pipeline_dead_letters.page(limit=1).dead_letters[0].error
        assert "ZeroDivisionError" in error
        assert "lambda n: 1 // (n - 1)" in error

        api.feed([leg("b", trigger, n=3)])
        run.until_handled(api, 2)
    project = ordered_project()
    project.pipeline(on="legs.*", table="sums", payload="n long", name="sums")(lambda events: events.select("payload.n"))
    with running(project, options, spark) as run:
        api.store.pipeline_dead_letters.act("redrive", again)
        until(lambda: letters(api) == [], "it was redriven", run.alive)
    assert [row["n"] for row in table(options, "sums")] == [0, 1]
    assert [row["id"] for row in table(options, "legs")] == ["a", "b"]


def pipelines_that_run(api: Api) -> int:
    with api.store.reading() as connection:
        query = select(func.count()).select_from(jobs).where(jobs.c.kind == "pipeline", jobs.c.state == "running")
        return int(connection.execute(query).scalar_one())


@pytest.mark.slow
def test_a_second_driver_waits_until_the_first_has_ended(api: Api, home: Path, spark: SparkSession) -> None:
    options = api.options(home)
    trigger = api.triggers("legs.a")["legs.a"]
    with running(ordered_project(), options, spark) as first:
        api.feed([leg("a", trigger, n=1)])
        first.until_handled(api, 1)
        with running(ordered_project(), options, spark) as second:
            until(lambda: pipelines_that_run(api) == 2, "the second has registered", second.thread.is_alive)
            first.stop.set()
            first.thread.join(60)
            api.feed([leg("b", trigger, n=1)])
            second.until_handled(api, 2)
    assert [row["id"] for row in table(options, "legs")] == ["a", "b"]


@pytest.mark.slow
def test_a_restored_log_with_new_events_is_refused(home: Path, spark: SparkSession) -> None:
    folder = home / "api"
    folder.mkdir()
    with running_api(folder) as api:
        trigger = api.triggers("legs.a")["legs.a"]
        options = api.options(home)
        api.feed([leg("a", trigger, n=1)])
        with running(ordered_project(), options, spark) as run:
            run.until_handled(api, 1)
    backup = {path: path.read_bytes() for path in folder.iterdir()}
    with running_api(folder, api.port) as later:
        later.feeders = api.feeders
        later.take_over()
        later.feed([leg("b", trigger, n=1)])
        with running(ordered_project(), options, spark) as run:
            run.until_handled(later, 2)
    for path in folder.iterdir():
        path.unlink()
    for path, content in backup.items():
        path.write_bytes(content)
    with running_api(folder, api.port) as restored:
        restored.feeders = api.feeders
        restored.take_over()
        restored.feed([leg("c", trigger, n=1), leg("d", trigger, n=1)])
        with running(ordered_project(), options, spark) as run:
            assert "the database was restored from a backup" in str(run.until_failed())
    assert [row["id"] for row in table(options, "legs")] == ["a", "b"]


@pytest.mark.slow
def test_payload_fields_are_learned_and_widened(api: Api, home: Path, spark: SparkSession) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    project = Project("flights")
    seen: list[str] = []

    @project.pipeline(on="legs.*")
    def look(events: DataFrame) -> None:
        seen.append(events.select("payload.*").schema.simpleString())

    with running(project, options, spark) as run:
        api.feed([leg("a", trigger, n=1, gate=None)])
        run.until_handled(api, 1)
        api.feed([leg("b", trigger, n=1.5, gate={"name": "A1"})])
        run.until_handled(api, 2)
    with running(project, options, spark) as run:
        api.feed([leg("c", trigger, more=[1])])
        run.until_handled(api, 3)
    assert seen == [
        "struct<gate:string,leg:string,n:bigint>",
        "struct<gate:struct<name:string>,leg:string,n:double>",
        "struct<gate:struct<name:string>,leg:string,n:double,more:array<bigint>>",
    ]
