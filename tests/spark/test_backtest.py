"""Backtests with Spark report what the index reports on every event."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace import Directory, Project
from headrace.replay import watch_matches
from headrace.replay.backtest import EXAMPLES, backtest
from headrace.replay.options import Fields, HistoryColumns, LogSelection, ReplayOptions
from headrace.replay.raw_events import RawEvents
from headrace.replay.run import Stopped, run_replay
from headrace.replay.spark_tasks import Tasks
from headrace.replay.watch_matches import SparkMatcher, WatchMatches
from headrace.triggers.watch import WatchTrigger
from support.patterns.typed_rows import events_of, patterns_on, table_of
from support.pipelines.kit import KEY, Api, leg

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROWS, WATCHES = 1_500, 18
FEED = Directory("feed", pattern="*.jsonl")
PATHS: tuple[dict[str, Any], ...] = (
    {"id": "$.number"},
    {"id": "$.number", "occurred": "$.at"},
    {"id": "$.text", "subject": "$.o.a", "follows": "$.category"},
    {"id": "$.f", "type": "$.Text"},
    {"id": "$.legs[0].n"},
    {"id": "$.o.missing"},
)
"""Fields of watches: of every event, or of some only."""


@pytest.fixture(autouse=True)
def any_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Match histories of any size with Spark."""
    monkeypatch.setattr(watch_matches, "MIN_EVENTS", 0)
    monkeypatch.setattr(watch_matches, "MIN_JSON_EVENTS", 0)


def silent(phase: str, done: int, total: int) -> None:
    """Do nothing."""


def project_of(patterns: Sequence[Any]) -> Project:
    project = Project("trial")
    for number, pattern in enumerate(patterns):
        project.watch(f"watch-{number:03}", FEED, match=pattern, **PATHS[number % len(PATHS)])
    project.watch("everything", FEED, id="$.number")
    project.watch("everything.timed", FEED, id="$.number", occurred="$.at")
    project.watch("by.key", FEED, match={"@": {"key": ["UA"]}}, id="$.number")
    return project


def replayed(spark: SparkSession, tmp_path: Path, history: Path, project: Project, names: HistoryColumns) -> tuple[RawEvents, list[Any]]:
    """Return the ordered events of a backtest, and its reports."""
    options = ReplayOptions(tmp_path / "out", tmp_path / "work", (history,), fields=Fields("number"), backtest=True)
    report = run_replay(options, project, silent, spark)
    assert not list((tmp_path / "work").iterdir())
    return RawEvents(tmp_path / "out" / "ordered", names), [one.on_wire() for one in report.triggers]


def matches_of(spark: SparkSession, tmp_path: Path, events: RawEvents, project: Project) -> WatchMatches:
    return SparkMatcher(spark, tmp_path / "work", Tasks(spark, silent, threading.Event())).match(watches_of(project), events, EXAMPLES)


def watches_of(project: Project) -> dict[str, WatchTrigger]:
    return {name: trigger for name, trigger in project.triggers.items() if isinstance(trigger, WatchTrigger)}


def undecided(events: RawEvents, found: WatchMatches) -> int:
    return sum(1 for _ in events.at(found.undecided))


def test_a_backtest_of_parquet_reports_what_the_index_does(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.replay.order.output.ROW_GROUP", 400)
    table = table_of(ROWS, seed=8)
    project = project_of(patterns_on(events_of(table.slice(0, 200)), WATCHES, seed=9))
    (tmp_path / "history").mkdir()
    for number in range(3):
        pq.write_table(table.slice(number * 500, 500), tmp_path / "history" / f"{number}.parquet")
    events, reports = replayed(spark, tmp_path, tmp_path / "history", project, HistoryColumns("number", None, None))
    assert reports == [report.on_wire() for report in backtest(project.triggers, events, lambda *_: None)]
    assert sum(report["fired"] > EXAMPLES for report in reports) > WATCHES / 4
    assert sum(report["missing"] > 0 for report in reports) > WATCHES / 4
    exact = project_of([{"text": ["x"], "f": [{"numeric": [">", 0]}]}])
    found = matches_of(spark, tmp_path, events, exact)
    assert found.firings["everything"].count == ROWS - undecided(events, found)
    assert 0 < found.firings["watch-000"].count < undecided(events, found) < ROWS / 2  # some have no time


def test_a_backtest_of_json_lines_reports_what_the_index_does(spark: SparkSession, tmp_path: Path) -> None:
    lines = events_of(table_of(ROWS, seed=10))
    project = project_of(patterns_on(lines[:200], WATCHES, seed=11))
    odd = ['{"number": 90001, "text": "y", "text": "x"}', '{"number": 90002, "text": "x"} x', '{"number": 90003, "legs": {"n": "1"}}']
    (tmp_path / "lines.jsonl").write_bytes(b"\n".join(lines) + "\n".join(["", *odd, "[1]", "no json"]).encode())
    events, reports = replayed(spark, tmp_path, tmp_path / "lines.jsonl", project, HistoryColumns("id", "occurred", "payload"))
    assert reports == [report.on_wire() for report in backtest(project.triggers, events, lambda *_: None)]
    few = Project("few")
    few.watch("few", FEED, match={"text": ["x"], "o": {"a": [{"prefix": "1"}]}}, id="$.number")
    found = matches_of(spark, tmp_path, events, few)
    assert 0 < undecided(events, found) < ROWS / 20


def test_a_backtest_of_the_log_reports_what_the_index_does(spark: SparkSession, api: Api, tmp_path: Path) -> None:
    (united,) = api.triggers("legs.united").values()
    api.feed([leg(f"{number}", united, delay=number) for number in range(40)])
    project = Project("trial")
    for name, match in (("legs.united", {"delay": [{"numeric": [">", 30]}]}), ("nothing", {"delay": ["x"]})):
        project.watch(name, FEED, match=match, id="$.leg", source="tests")
    options = ReplayOptions(tmp_path / "out", tmp_path / "work", log=LogSelection(api.url, KEY), fields=Fields(), backtest=True)
    report = run_replay(options, project, silent, spark)
    events = RawEvents(tmp_path / "out" / "ordered", HistoryColumns("id", "occurred", "payload"))
    assert report.triggers == backtest(project.triggers, events, lambda *_: None)
    assert [one.fired for one in report.triggers] == [9, 0]


@pytest.mark.parametrize(("fields", "queries"), [(10, [10, 9, 3]), (5, []), (1, [])])
def test_watches_are_matched_in_several_queries_or_by_the_index(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: int, queries: list[int]
) -> None:
    monkeypatch.setattr(watch_matches, "MAX_FIELDS", fields)
    monkeypatch.setattr(watch_matches, "MAX_QUERIES", 3)
    pq.write_table(pa.table({"number": range(50), "text": ["x", "y"] * 25}), tmp_path / "rows.parquet")
    project = project_of([{"text": ["x"]}] * 18 + [{"text": ["x"], "number": [0]}])
    events, reports = replayed(spark, tmp_path, tmp_path / "rows.parquet", project, HistoryColumns("number", None, None))
    assert [report["fired"] for report in (reports[0], reports[12], reports[18], reports[19])] == [25, 25, 1, 50]
    matcher = SparkMatcher(spark, tmp_path / "work", Tasks(spark, silent, threading.Event()))
    assert [len(group) for group in matcher.groups(watches_of(project), events)] == queries


def test_a_small_or_empty_history_is_matched_by_the_index(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_matches, "MIN_EVENTS", 1)
    pq.write_table(pa.table({"number": pa.array([None], pa.int64())}), tmp_path / "rows.parquet")
    events, reports = replayed(spark, tmp_path, tmp_path / "rows.parquet", project_of([]), HistoryColumns("number", None, None))
    assert [report["fired"] for report in reports] == [0, 0, 0]
    matcher = SparkMatcher(spark, tmp_path / "work", Tasks(spark, silent, threading.Event()))
    assert matcher.groups(watches_of(project_of([])), events) == []


def test_an_event_that_takes_too_many_steps_fires_nothing(spark: SparkSession, tmp_path: Path) -> None:
    tags = [["x"] * 50_000, ["x"] * 10, ["x", "y" * 2_000], None]
    pq.write_table(pa.table({"number": range(4), "text": ["x"] * 4, "tags": tags}), tmp_path / "rows.parquet")
    project = project_of([{"text": ["x"], "tags": [{"anything-but": f"tag-{number}"}]} for number in range(40)])
    events, reports = replayed(spark, tmp_path, tmp_path / "rows.parquet", project, HistoryColumns("number", None, None))
    assert reports == [report.on_wire() for report in backtest(project.triggers, events, lambda *_: None)]
    assert (reports[0]["fired"], reports[0]["first"]["id"]) == (3, "1")
    matches = matches_of(spark, tmp_path, events, project)
    assert matches.firings["watch-000"].count == 2


def test_a_stopped_backtest_removes_its_files(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"number": range(50)}), tmp_path / "rows.parquet")
    stop = threading.Event()

    def at(phase: str, done: int, total: int) -> None:
        if phase == "backtest of watches":
            stop.set()

    options = ReplayOptions(tmp_path / "out", tmp_path / "work", (tmp_path / "rows.parquet",), fields=Fields("number"), backtest=True)
    with pytest.raises(Stopped):
        run_replay(options, project_of([{"number": [1]}]), at, spark, stop)
    assert not list((tmp_path / "work").iterdir())
