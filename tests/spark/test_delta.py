"""Delta tables: the rows of each run are stored once, even if the run is repeated."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace.errors import PipelineError
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey
from headrace.pipeline.tables.delta.sink import DeltaSink
from headrace.pipeline.tables.parquet.sink import ParquetSink
from headrace.pipeline.tables.rows import MAX_DRIVER_EVENTS
from headrace.project import Project
from support.pipelines.kit import Api, leg
from support.pipelines.run import no_reports, running

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PLACE = RunKey("legs", "legs", 0)
RUN = Attempt("digest")
ORIGIN = Origin("log", "flights", "first")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return rows


@pytest.mark.slow
def test_a_run_that_is_executed_again_is_appended_once(api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home, max_rows=100)
    project = Project("flights")

    @project.pipeline(on="legs.*", table="legs", format="delta")
    def legs(events: DataFrame) -> DataFrame:
        return events.select("position", "id", "occurred", "payload.n")

    feed = [leg(f"{n}", trigger, follows=f"{n - 1}" if n % 5 else None, n=n) for n in range(120)]
    random.Random(1).shuffle(feed)
    with no_reports(monkeypatch), running(project, options, spark) as run:
        api.feed(feed)
        assert "cannot be reported" in str(run.until_failed())
    assert rows_of(options.tables / "legs")
    with running(project, options, spark) as run:
        run.until_handled(api, 120)
        api.feed([leg("last", trigger, n=9)])
        run.until_handled(api, 121)
    stored = sorted(rows_of(options.tables / "legs"), key=lambda row: row["position"])
    assert [row["position"] for row in stored] == list(range(1, 122))
    assert {row["id"] for row in stored} == {str(n) for n in range(120)} | {"last"}


@pytest.mark.slow
def test_rows_of_a_large_batch_are_written_through_files_with_equal_types(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(10).withColumn("at", fn.timestamp_seconds("id")).withColumn("tags", fn.array(fn.lit("x")))
    sink = DeltaSink(tmp_path, ORIGIN)
    sink.store(PLACE, RUN, rows, 10)
    small = DeltaTable(tmp_path / "legs").schema()
    assert sink.store(RunKey("legs", "legs", 1), RUN, rows, MAX_DRIVER_EVENTS + 1) == 10
    assert DeltaTable(tmp_path / "legs").schema() == small
    assert sorted(row["id"] for row in rows_of(tmp_path / "legs")) == sorted([*range(10)] * 2)
    assert not list((tmp_path / ".staging").glob("*/*"))


def test_rows_that_do_not_fit_the_table_are_refused_with_a_hint(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path, ORIGIN)
    sink.store(PLACE, RUN, spark.range(3), 3)
    with pytest.raises(PipelineError, match="do not fit the Delta table 'legs'") as caught:
        sink.store(RunKey("legs", "legs", 1), RUN, spark.range(3).withColumn("more", fn.lit(1)), 3)
    assert "ALTER TABLE" in (caught.value.hint or "")
    assert len(rows_of(tmp_path / "legs")) == 3


def test_a_table_cannot_mix_parquet_and_delta(spark: SparkSession, tmp_path: Path) -> None:
    ParquetSink(tmp_path, ORIGIN).store(PLACE, RUN, spark.range(3), 3)
    with pytest.raises(PipelineError, match="plain Parquet") as caught:
        DeltaSink(tmp_path, ORIGIN).stored(PLACE, "digest")
    assert "convert_to_deltalake" in (caught.value.hint or "")
    DeltaSink(tmp_path, ORIGIN).store(RunKey("delta", "legs", 0), RUN, spark.range(3), 3)
    with pytest.raises(PipelineError, match="holds a Delta table"):
        ParquetSink(tmp_path, ORIGIN).store(RunKey("delta", "legs", 1), RUN, spark.range(3), 3)


@pytest.mark.parametrize("left", ["_commit_2f.json.tmp", f"{0:020}.json"])
def test_a_table_whose_creation_was_interrupted_is_created(spark: SparkSession, tmp_path: Path, left: str) -> None:
    """A killed driver leaves a draft. A power cut leaves an empty commit."""
    log = tmp_path / "legs" / "_delta_log"
    log.mkdir(parents=True)
    (log / left).write_text("")
    sink = DeltaSink(tmp_path, ORIGIN)
    sink.shut_out([PLACE])
    assert sink.stored(PLACE, "digest") is None
    assert sink.store(PLACE, RUN, spark.range(3), 3) == 3
    assert len(rows_of(tmp_path / "legs")) == 3


def test_a_missing_deltalake_is_reported(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['deltalake'] = None\n"
        "from pathlib import Path\n"
        "from headrace import Project\n"
        "from headrace.pipeline.runs.identity import Origin\n"
        "from headrace.pipeline.tables.sinks import open_sinks\n"
        "project = Project('p')\n"
        "project.pipeline(on='a', table='legs', format='delta')(print)\n"
        "open_sinks(project.pipelines.values(), Path(), Origin('log', 'scope', 'first'))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert "headrace.errors.PipelineError: A pipeline writes a Delta table, and deltalake is missing." in ended.stderr
