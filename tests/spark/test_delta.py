"""Delta tables, and what holds for Iceberg tables too: the rows of each run are stored once, even if the run is repeated."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace.errors import PipelineError, TypeConflict
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey
from headrace.pipeline.tables.contents import format_of
from headrace.pipeline.tables.delta.sink import DeltaSink
from headrace.pipeline.tables.iceberg.maintenance import opened
from headrace.pipeline.tables.maintenance import compact, vacuum
from headrace.pipeline.tables.parquet.sink import ParquetSink
from headrace.pipeline.tables.rows import MAX_DRIVER_EVENTS
from headrace.pipeline_declaration import TableFormat, TableOptions
from headrace.project import Project
from support.pipelines.kit import Api, leg
from support.pipelines.run import no_reports, running, tables_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-tables")]

PLACE = RunKey("legs", "legs", 0)
RUN = Attempt("digest")
ORIGIN = Origin("log", "flights", "first")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    table = opened(folder).scan().to_arrow() if format_of(folder) == "iceberg" else DeltaTable(folder).to_pyarrow_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_run_that_is_executed_again_is_appended_once(
    api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, format: TableFormat
) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home, max_rows=100)
    project = Project("flights")

    @project.pipeline(on="legs.*", table="legs", format=format)
    def legs(events: DataFrame) -> DataFrame:
        return events.select("position", "id", "occurred", "payload.n")

    feed = [leg(f"{n}", trigger, follows=f"{n - 1}" if n % 5 else None, n=n) for n in range(120)]
    random.Random(1).shuffle(feed)
    with no_reports(monkeypatch), running(project, options, spark) as run:
        api.feed(feed)
        assert "cannot be reported" in str(run.until_failed())
    assert rows_of(tables_of(options) / "legs")
    with running(project, options, spark) as run:
        run.until_handled(api, 120)
        api.feed([leg("last", trigger, n=9)])
        run.until_handled(api, 121)
    stored = sorted(rows_of(tables_of(options) / "legs"), key=lambda row: row["position"])
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


def test_a_table_that_evolves_takes_new_columns_and_fields_and_no_other_type(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path, ORIGIN, options={"legs": TableOptions(evolve=True)})
    nested = fn.struct(fn.lit(1).alias("a"))
    sink.store(PLACE, RUN, spark.range(2).withColumn("s", nested), 2)
    wider = fn.struct(fn.lit(1).alias("a"), fn.lit("x").alias("b"))
    sink.store(RunKey("legs", "legs", 1), RUN, spark.range(2, 3).withColumn("s", wider).withColumn("more", fn.lit(7)), 1)
    sink.store(RunKey("legs", "legs", 2), RUN, spark.range(3, MAX_DRIVER_EVENTS), MAX_DRIVER_EVENTS + 1)
    rows = {row["id"]: (row["s"], row["more"]) for row in rows_of(tmp_path / "legs")}
    assert rows[1] == ({"a": 1, "b": None}, None)
    assert rows[2] == ({"a": 1, "b": "x"}, 7)
    assert rows[3] == (None, None)
    assert len(rows) == MAX_DRIVER_EVENTS
    with pytest.raises(PipelineError, match="the column 'more' is int in the table and string in the rows"):
        sink.store(RunKey("legs", "legs", 3), RUN, spark.range(1).withColumn("more", fn.lit("x")), 1)
    assert len(rows_of(tmp_path / "legs")) == MAX_DRIVER_EVENTS


def test_competing_drivers_that_add_columns_store_each_run_once(spark: SparkSession, tmp_path: Path) -> None:
    options = {"legs": TableOptions(evolve=True)}
    DeltaSink(tmp_path, ORIGIN).store(PLACE, RUN, spark.range(1), 1)

    def store(number: int) -> int:
        sink = DeltaSink(tmp_path, ORIGIN, options=options)
        return sink.store(RunKey("legs", f"legs{number // 2}", 1), RUN, spark.range(1).withColumn(f"c{number // 2}", fn.lit(number)), 1)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(store, range(4))) == [1] * 4
    rows = rows_of(tmp_path / "legs")
    assert len(rows) == 3
    assert set(rows[0]) == {"id", "c0", "c1"}


def test_a_partitioned_table_has_a_folder_for_each_value_and_stores_a_run_once(spark: SparkSession, tmp_path: Path) -> None:
    options = {"legs": TableOptions(partition_by=("kind", "day"))}
    kinds = fn.when(fn.col("id") % 3 == 0, fn.lit("a/b ü=%")).when(fn.col("id") % 3 == 1, fn.lit("c"))
    rows = spark.range(30).withColumn("kind", kinds).withColumn("day", fn.expr("date_add(DATE'2026-11-01', int(id % 2))"))
    for size in (30, MAX_DRIVER_EVENTS + 1):
        key = RunKey("legs", "legs", size)
        assert DeltaSink(tmp_path, ORIGIN, options=options).store(key, RUN, rows, size) == 30
        assert DeltaSink(tmp_path, ORIGIN, options=options).store(key, RUN, rows, size) == 30
    table = DeltaTable(tmp_path / "legs")
    assert table.metadata().partition_columns == ["kind", "day"]
    DeltaSink(tmp_path, ORIGIN, options=options).shut_out([RunKey("legs", "legs", 99_999)])
    assert DeltaTable(tmp_path / "legs").metadata().partition_columns == ["kind", "day"]
    assert len(table.partitions()) == 6
    assert sorted(rows_of(tmp_path / "legs"), key=str) == sorted((row.asDict() for row in rows.union(rows).collect()), key=str)
    assert compact(tmp_path, "legs").files_after == 6
    assert len(rows_of(tmp_path / "legs")) == 60
    DeltaSink(tmp_path, ORIGIN).store(RunKey("legs", "legs", 99_999), RUN, rows, 30)
    assert len(rows_of(tmp_path / "legs")) == 90, "a pipeline without partition_by= writes the table as it is"


def test_any_text_is_the_value_of_a_partition(spark: SparkSession, tmp_path: Path) -> None:
    values = ["a/b", "..", "a=b", "50%", "line\nend", "ü?#&", " ", "%2F", "null", "x" * 250, None]
    rows = spark.createDataFrame(list(enumerate(values)), "id int, kind string")
    sink = DeltaSink(tmp_path, ORIGIN, options={"legs": TableOptions(partition_by=("kind",))})
    for batch in (0, 1):
        assert sink.store(RunKey("legs", "legs", batch), RUN, rows, len(values)) == len(values)
    compact(tmp_path, "legs")
    vacuum(tmp_path, "legs", 0, dry_run=False)
    table = DeltaTable(tmp_path / "legs")
    assert len(table.file_uris()) == len(values)
    stored = table.to_pyarrow_table().column("kind").to_pylist()
    assert (len(stored), set(stored)) == (2 * len(values), set(values))


@pytest.mark.parametrize("value", ["x" * 251, "ü" * 42, "/" * 84])
def test_a_value_that_is_too_long_for_the_name_of_a_folder_is_refused(spark: SparkSession, tmp_path: Path, value: str) -> None:
    rows = spark.range(1).withColumn("kind", fn.lit(value))
    sink = DeltaSink(tmp_path, ORIGIN, options={"legs": TableOptions(partition_by=("kind",))})
    with pytest.raises(TypeConflict, match=r"'kind' partitions it, and its value .* is too long for the name of a folder"):
        sink.store(PLACE, RUN, rows, 1)
    assert sink.store(PLACE, RUN, rows.withColumn("kind", fn.lit(value[1:])), 1) == 1


@pytest.mark.parametrize("size", [2, MAX_DRIVER_EVENTS + 1])
def test_an_empty_text_in_a_partition_column_is_refused_and_not_stored_as_null(spark: SparkSession, tmp_path: Path, size: int) -> None:
    rows = spark.createDataFrame([("a", 1), ("", 2)], "kind string, n int")
    sink = DeltaSink(tmp_path, ORIGIN, options={"legs": TableOptions(partition_by=("kind",))})
    with pytest.raises(TypeConflict, match="'kind' partitions it and has an empty text"):
        sink.store(PLACE, RUN, rows, size)
    assert rows_of(tmp_path / "legs") == []
    assert sink.store(PLACE, RUN, rows.where("kind = 'a'"), size) == 1
    with pytest.raises(TypeConflict, match="names all its columns"):
        DeltaSink(tmp_path, ORIGIN, options={"other": TableOptions(partition_by=("kind",))}).store(
            RunKey("other", "legs", 0), RUN, rows.select("kind"), size
        )


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (("day",), "the rows have no column 'day'"),
        (("ratio",), "'ratio' of partition_by= is double"),
        (("id", "ratio", "kind"), "'ratio' of partition_by= is double"),
        (("id", "kind"), None),
        (("kind",), "it is partitioned by id, kind, and partition_by= declares kind"),
    ],
)
def test_columns_that_cannot_partition_are_refused(
    spark: SparkSession, tmp_path: Path, columns: tuple[str, ...], reason: str | None
) -> None:
    rows = spark.range(3).withColumn("ratio", fn.lit(0.5)).withColumn("kind", fn.lit("a"))
    if columns == ("kind",):
        DeltaSink(tmp_path, ORIGIN, options={"legs": TableOptions(partition_by=("id", "kind"))}).store(PLACE, RUN, rows, 3)
    sink = DeltaSink(tmp_path, ORIGIN, options={"legs": TableOptions(partition_by=columns)})
    if reason is None:
        assert sink.store(PLACE, RUN, rows, 3) == 3
        return
    with pytest.raises(TypeConflict, match=reason):
        sink.store(RunKey("legs", "legs", 1), RUN, rows, 3)


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


@pytest.mark.parametrize(("format", "library", "table"), [("delta", "deltalake", "a Delta"), ("iceberg", "pyiceberg", "an Iceberg")])
def test_a_missing_library_is_reported(tmp_path: Path, format: str, library: str, table: str) -> None:
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from pathlib import Path\n"
        "from headrace import Project\n"
        "from headrace.pipeline.runs.identity import Origin\n"
        "from headrace.pipeline.tables.sinks import open_sinks\n"
        "project = Project('p')\n"
        f"project.pipeline(on='a', table='legs', format={format!r})(print)\n"
        "open_sinks(project.pipelines.values(), Path(), Origin('log', 'scope', 'first'))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert f"headrace.errors.PipelineError: A pipeline writes {table} table, and {library} is missing." in ended.stderr
