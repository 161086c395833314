"""Replays in a real session: files and the log, with and without a key, backtests and pipelines."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace import Directory, Project
from headrace.errors import UsageError
from headrace.pipeline.tables.iceberg.maintenance import opened
from headrace.replay.options import Fields, LogSelection, ReplayOptions
from headrace.replay.project_inputs import fields_of
from headrace.replay.run import ReplayReport, Stopped, run_replay
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import SKIP, Handled, Reject, TriggerEvent
from support.pipelines.kit import KEY, Api, leg

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

LEGS = Fields("leg", "previous", "at", key=None)


def silent(phase: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


def legs(aircraft: int, hops: int) -> list[dict[str, Any]]:
    return [
        {"leg": f"{a}-{h}", "previous": f"{a}-{h - 1}" if h else None, "at": h * 100 + a, "tail": a, "carrier": "UA" if a % 2 else "DL"}
        for a in range(aircraft)
        for h in range(hops)
    ]


def shuffled(rows: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    return random.Random(seed).sample(rows, len(rows))


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """100 aircraft of 10 legs in three files, with a leg that is there twice and one whose previous leg is not."""
    folder = tmp_path / "history"
    folder.mkdir()
    rows = shuffled([*legs(100, 10), legs(1, 1)[0], {"leg": "x", "previous": "gone", "at": 7, "tail": 3, "carrier": "DL"}], 1)
    for number in range(3):
        pq.write_table(pa.Table.from_pylist(rows[number::3]), folder / f"{number}.parquet")
    return folder


def options(tmp_path: Path, *paths: Path, **other: Any) -> ReplayOptions:
    given: dict[str, Any] = {"out": tmp_path / "out", "work": tmp_path / "work", "paths": paths, "fields": LEGS}
    return ReplayOptions(**(given | other))


def ordered(report: ReplayReport) -> list[dict[str, Any]]:
    return [row for path in sorted((report.out / "ordered").iterdir()) for row in pq.read_table(path).to_pylist()]


def check_order(rows: list[dict[str, Any]]) -> None:
    place = {row["leg"]: row["position"] for row in rows}
    for row in rows:
        if row["previous"] is not None and row["mark"] is None:
            assert place[row["previous"]] < row["position"]


def test_a_replay_of_parquet_without_a_key_is_in_causal_order(spark: SparkSession, parquet: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    report = run_replay(options(tmp_path, parquet), None, lambda *news: told.append(news), spark)
    rows = ordered(report)
    assert [row["position"] for row in rows] == list(range(1, 1_002))
    assert [row["leg"] for row in rows if row["mark"] == "lost"] == ["x"]
    assert list(rows[0]) == ["position", "mark", "leg", "previous", "at", "tail", "carrier"]
    check_order(rows)
    outcome = report.outcome
    assert (outcome.events, outcome.lost, outcome.copies, outcome.cycles) == (1_001, 1, 1, 0)
    assert list(dict.fromkeys(phase for phase, _, _ in told)) == ["reading", "matching", "climbing", "placing", "writing"]
    assert not list((tmp_path / "work").iterdir())


def test_a_replay_of_parquet_with_a_key_is_in_causal_order(spark: SparkSession, parquet: Path, tmp_path: Path) -> None:
    report = run_replay(options(tmp_path, parquet, fields=Fields("leg", "previous", "at", key="tail")), None, silent, spark)
    rows = ordered(report)
    check_order(rows)
    positions = [row["position"] for row in rows]
    assert positions == sorted(set(positions))
    assert (report.outcome.events, report.outcome.lost, report.outcome.copies) == (1_001, 1, 1)


def test_a_leader_with_another_key_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    rows = [*legs(20, 5), {"leg": "swap", "previous": "3-4", "at": 900, "tail": 4, "carrier": "DL"}]
    pq.write_table(pa.Table.from_pylist(shuffled(rows, 3)), tmp_path / "legs.parquet")
    report = run_replay(
        options(tmp_path, tmp_path / "legs.parquet", fields=Fields("leg", "previous", "at", key="tail")), None, silent, spark
    )
    assert [row["leg"] for row in ordered(report) if row["mark"] == "lost"] == ["swap"]
    assert (report.outcome.lost, report.outcome.crossing, report.outcome.crossing_ids) == (1, 1, ["swap"])
    told = report.on_wire()
    assert (told["leader_under_another_key"], told["leader_under_another_key_examples"]) == (1, ["swap"])


def test_ids_stored_as_floats_match_and_invalid_times_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"n": [2, 0, 1], "up": [1.0, None, 0.0], "at": ["soon", "2026-11-21T00:00:00Z", None]})
    pq.write_table(rows, tmp_path / "mixed.parquet")
    report = run_replay(options(tmp_path, tmp_path / "mixed.parquet", fields=Fields("n", "up", "at")), None, silent, spark)
    assert [row["n"] for row in ordered(report)] == [0, 1, 2]
    assert (report.outcome.lost, report.outcome.untimed) == (0, 2)


@pytest.mark.parametrize("within", ["reading", "writing"])
def test_a_stopped_replay_leaves_no_files(spark: SparkSession, parquet: Path, tmp_path: Path, within: str) -> None:
    stop = threading.Event()

    def at(phase: str, done: int, total: int) -> None:
        if phase == within:
            stop.set()

    with pytest.raises(Stopped):
        run_replay(options(tmp_path, parquet), None, at, spark, stop)
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "work").iterdir())


class Loud(BaseEventTrigger):
    """A trigger in Python, not yet switched on."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Loud", {}

    def shared_stream_key(self) -> str:
        return reports.stream_key()

    async def handle(self, raw: Any) -> Handled:
        leg = raw.value["leg"]
        if leg == "5-5":
            return Reject("not this one")
        if leg == "7-9":
            raise ValueError("no such airport")
        return TriggerEvent(leg) if leg.startswith("5-") else SKIP


reports = Directory("feed", pattern="*.jsonl")


def flights() -> Project:
    project = Project("flights")
    fields: dict[str, Any] = {"id": "$.leg", "follows": "$.previous", "occurred": "$.at"}
    project.watch("legs.united", reports, match={"carrier": ["UA"]}, **fields)
    project.watch("legs.all", reports, **fields)
    project.trigger("loud", Loud())

    @project.pipeline(on="legs.united", table="hops", payload="leg STRING, tail INT")
    def hops(events: DataFrame) -> DataFrame:
        return events.select("position", "id", "follows", "mark", "triggers", "payload.tail")

    @project.pipeline(on="legs.united", table="counts", key="tail", columns="tail int, hops long", payload="tail INT")
    def counts(events: DataFrame, rows: DataFrame) -> DataFrame:
        return events.select("payload.tail", sf.lit(1).alias("hops")).unionByName(rows).groupBy("tail").agg(sf.sum("hops").alias("hops"))

    @project.pipeline(on="legs.united", table="stops", format="iceberg", payload="leg STRING")
    def stops(events: DataFrame) -> DataFrame:
        return events.select("position", "id")

    @project.pipeline(on="legs.united", table="tails", format="iceberg", key="tail", columns="tail int, hops long", payload="tail INT")
    def tails(events: DataFrame, rows: DataFrame) -> DataFrame:
        return counts(events, rows)

    return project


def json_lines(tmp_path: Path) -> Path:
    folder = tmp_path / "json"
    folder.mkdir()
    lines = [json.dumps(row) for row in shuffled(legs(20, 10), 2)]
    (folder / "a.jsonl").write_text("\n".join(lines[:150]) + "\n\nnot json\n")
    (folder / "b.jsonl").write_text("\n".join(lines[150:]))
    return folder


def test_a_replay_of_json_lines_runs_a_backtest_and_pipelines(spark: SparkSession, tmp_path: Path) -> None:
    project = flights()
    asked = options(tmp_path, json_lines(tmp_path), fields=fields_of(project, None), backtest=True, pipelines=True)
    report = run_replay(asked, project, silent, spark)
    assert (report.outcome.events, report.outcome.unnamed) == (200, 1)
    united, everything, loud = report.triggers
    assert (united.fired, everything.fired, loud.fired, loud.rejected) == (100, 200, 9, 1)
    assert united.first is not None
    assert (united.first.id, [fired.id for fired in united.examples]) == ("1-0", ["1-0", "3-0", "5-0"])
    assert everything.last is not None
    assert (everything.last.id, everything.last.position) == ("19-9", 200)
    assert loud.note is not None
    assert "no such airport" in loud.note
    ran, counted, stops, tails = report.pipelines
    assert (counted.pipeline, counted.events, counted.rows) == ("counts", 100, 10)
    assert {row["hops"] for row in DeltaTable(tmp_path / "out" / "tables" / "counts").to_pyarrow_table().to_pylist()} == {10}
    assert (ran.pipeline, ran.batches, ran.events, ran.rows) == ("hops", 1, 100, 100)
    assert (stops.pipeline, stops.rows, tails.pipeline, tails.rows) == ("stops", 100, "tails", 10)
    assert opened(tmp_path / "out" / "tables" / "stops").scan().to_arrow().num_rows == 100
    assert {row["hops"] for row in opened(tmp_path / "out" / "tables" / "tails").scan().to_arrow().to_pylist()} == {10}
    rows = pq.read_table(tmp_path / "out" / "tables" / "hops").to_pylist()
    assert [row["position"] for row in rows] == sorted(row["position"] for row in rows)
    assert rows[0]["triggers"] == ["legs.all", "legs.united"] or rows[0]["triggers"] == ["legs.united", "legs.all"]
    json.dumps(report.on_wire(), default=str)


def test_a_replay_reads_the_log_through_the_api(spark: SparkSession, api: Api, tmp_path: Path) -> None:
    (united,) = api.triggers("legs.united").values()
    chain = [leg(f"{i}", united, follows=f"{i - 1}" if i else None) for i in range(40)]
    api.feed([*reversed(chain), leg("orphan", united, follows="gone")])
    report = run_replay(options(tmp_path, fields=Fields(), log=LogSelection(api.url, KEY)), None, silent, spark)
    rows = ordered(report)
    assert [row["id"] for row in rows if row["id"] != "orphan"] == [str(i) for i in range(40)]
    assert [row["mark"] for row in rows if row["id"] == "orphan"] == ["lost"]
    assert rows[0]["triggers"] == ["legs.united"]
    assert not list((tmp_path / "work").glob("token*"))


def test_invalid_options_of_a_replay_are_refused_before_any_output(spark: SparkSession, parquet: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no column 'leader'\. It has: leg, previous, at, tail, carrier"):
        run_replay(options(tmp_path, parquet, fields=Fields("leg", "leader")), None, silent, spark)
    with pytest.raises(UsageError, match="They have: leg, previous, at, tail, carrier"):
        run_replay(options(tmp_path, json_lines(tmp_path), fields=Fields()), None, silent, spark)
    with pytest.raises(UsageError, match="There is no"):
        run_replay(options(tmp_path, tmp_path / "nowhere"), None, silent, spark)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UsageError, match="neither Parquet nor JSON"):
        run_replay(options(tmp_path, tmp_path / "notes.txt"), None, silent, spark)
    with pytest.raises(UsageError, match="not empty"):
        run_replay(options(tmp_path, parquet, out=parquet), None, silent, spark)
    with pytest.raises(UsageError, match=r"Cannot make the folder .*legs: Not a directory"):
        run_replay(options(tmp_path, parquet, out=parquet / "0.parquet" / "legs"), None, silent, spark)
    assert not (tmp_path / "out" / "ordered").exists()
