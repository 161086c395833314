"""The pipelines of the example, batch by batch, compared with the check of the demo."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace.demo.project_file import install_project
from headrace.demo.report.check import CheckResult, check_tables
from headrace.demo.report.tables import read_board, read_departures
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey
from headrace.pipeline.tables.parquet.sink import ParquetSink
from headrace.pipeline.tables.sinks import open_sinks
from headrace.pipeline.tables.table_runs import TableRun, call_pipeline
from headrace.project import Project, load_project
from support.pipelines.flights import FEW, few_plan, january, right_outcome

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ORIGIN = Origin("log", "flights", "first")
COLUMNS = "position long, mark string, seq long, payload string"


def batch(spark: SparkSession, project: Project, first: int, count: int, *, backwards: bool = False) -> DataFrame:
    """Return events `first` to `first + count` as a pipeline gets them: in the order of the right outcome, or against it."""
    outcome = right_outcome()
    legs = {leg.leg_id: leg for leg in outcome.legs}
    order = list(reversed(outcome.departures)) if backwards else outcome.departures
    rows = [
        (place, order[place].mark, place + 1, msgspec.json.encode(legs[order[place].leg_id]).decode())
        for place in range(first, min(first + count, len(order)))
    ]
    payload = project.pipelines["knock_on_delay"].payload or ""
    return spark.createDataFrame(rows, COLUMNS).withColumn("payload", sf.from_json("payload", payload))


def opened(spark: SparkSession, home: Path) -> Project:
    """Return the project; the session may have run other pipelines before, with tables elsewhere."""
    spark.conf.set("spark.headrace.tables", str(home / "tables"))
    return load_project(install_project(home))


def run(spark: SparkSession, home: Path, *, backwards: bool = False) -> CheckResult:
    project = opened(spark, home)
    pipelines = project.pipelines
    sinks = open_sinks(pipelines.values(), home / "tables", ORIGIN)
    for number, first in enumerate(range(0, FEW, 1_100)):
        events = batch(spark, project, first, 1_100, backwards=backwards).persist()
        for name, pipeline in pipelines.items():
            assert pipeline.table is not None
            key = RunKey(pipeline.table, name, number)
            call_pipeline(pipeline, events, TableRun(sinks[pipeline.format], key, Attempt("digest"), 1_100))
        events.unpersist()
    outcome = right_outcome()
    tables = home / "tables"
    return check_tables(few_plan().manifest, list(january()[:FEW]), read_departures(tables), read_board(tables), outcome.dead_letters)


@pytest.mark.slow
def test_both_tables_are_correct_for_chains_split_over_batches(spark: SparkSession, tmp_path: Path) -> None:
    result = run(spark, tmp_path)
    assert [point for point in result.points if not point.ok] == []


@pytest.mark.slow
def test_without_the_order_the_knock_on_delay_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    """The pipeline needs what Headrace gives; were this green, the demo would prove nothing."""
    failed = {point.what for point in run(spark, tmp_path, backwards=True).points if not point.ok}
    assert {"Every knock-on delay is right", "No departure is before the one it follows"} <= failed


@pytest.mark.slow
def test_a_repeated_batch_has_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    project, sink = opened(spark, tmp_path), ParquetSink(tmp_path / "tables", ORIGIN)
    pipeline = project.pipelines["knock_on_delay"]
    events = batch(spark, project, 0, 500)
    sink.store(RunKey("knock_on_delay", "knock_on_delay", 0), Attempt("digest"), pipeline.function(events), 500)
    again = pipeline.function(events).collect()
    assert {tuple(row) for row in again} == {tuple(row) for row in read_departures(tmp_path / "tables")}
    assert len(again) == 500
