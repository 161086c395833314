"""`headrace tables list`, `history`, `compact` and `vacuum`, on tables that sinks go on writing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.table import TableOptimizer
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import HeadraceError
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.tables.delta.sink import DeltaSink
from headrace.pipeline.tables.iceberg.maintenance import opened
from headrace.pipeline.tables.iceberg.sink import IcebergSink
from headrace.pipeline.tables.maintenance import compact, vacuum
from headrace.pipeline.tables.parquet import ParquetSink

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.slow]

ORIGIN = Origin("log", "shop", "first")
COLUMNS = pa.schema([("k", pa.int64()), ("n", pa.int64())])
RUNS = 12


def test_two_compactions_at_once_do_not_double_the_rows(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake commits both: a compaction that began before another one has ended is refused."""
    fill(spark, tmp_path, DeltaSink)
    compact_files = TableOptimizer.compact

    def compact_twice(self: TableOptimizer) -> dict[str, Any]:
        with pytest.raises(HeadraceError, match="Another process compacts the table 'appended'"):
            compact(tmp_path, "appended")
        return compact_files(self)

    monkeypatch.setattr(TableOptimizer, "compact", compact_twice)
    assert compact(tmp_path, "appended").files_after == 1
    assert DeltaTable(tmp_path / "appended").to_pyarrow_table().num_rows == RUNS
    monkeypatch.undo()
    assert compact(tmp_path, "appended").files_after == 1, "the lock ends with the compaction"


def returns(rows: DataFrame) -> Callable[[pa.Table], DataFrame]:
    return lambda _: rows


Kind = type[DeltaSink] | type[IcebergSink]


def fill(spark: SparkSession, tables: Path, kind: Kind) -> DeltaSink | IcebergSink:
    """Write a keyed table, an append table with small files, and a Parquet table."""
    sink, parquet = kind(tables, ORIGIN), ParquetSink(tables, ORIGIN)
    for batch in range(RUNS):
        keys = pa.table({"k": [0, batch]}).group_by("k").aggregate([])
        rows = spark.createDataFrame([(each["k"], batch) for each in keys.to_pylist()], "k long, n long")
        sink.replace(RunKey("keyed", "keyed", batch), Attempt("a", 1, f"run-{batch}"), keys, COLUMNS, returns(rows))
        sink.store(RunKey("appended", "appended", batch), Attempt("a"), spark.range(batch, batch + 1), 1)
    parquet.store(RunKey("parquet", "parquet", 0), Attempt("a"), spark.range(3), 3)
    return sink


def output(tables: Path, *arguments: str) -> Any:
    """Return what a command prints as JSON."""
    result = CliRunner().invoke(app, ["tables", *arguments, "--tables", str(tables), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def rows_of(tables: Path, name: str) -> list[dict[str, Any]]:
    if (tables / name / "_delta_log").exists():
        rows: list[dict[str, Any]] = DeltaTable(tables / name).to_pyarrow_table().to_pylist()
    else:
        rows = opened(tables / name).scan().to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize("kind", [DeltaSink, IcebergSink], ids=["delta", "iceberg"])
def test_tables_are_listed_compacted_and_vacuumed_while_they_are_written(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    sink = fill(spark, tmp_path, kind)
    format = "delta" if kind is DeltaSink else "iceberg"
    data = tmp_path / "appended" / ("" if kind is DeltaSink else "data")
    before = {each["name"]: each for each in output(tmp_path, "list")["tables"]}
    assert {name: (each["format"], each["rows"]) for name, each in before.items()} == {
        "appended": (format, RUNS),
        "keyed": (format, RUNS),
        "parquet": ("parquet", 3),
    }
    assert all(each["bytes"] > 100 and each["written"] for each in before.values())
    history = output(tmp_path, "history", "keyed", "-n", "2")["changes"]
    assert [(change["pipeline"], change["batch"], change["run_id"], change["rows"]) for change in history] == [
        ("keyed", RUNS - 1, f"run-{RUNS - 1}", 2),
        ("keyed", RUNS - 2, f"run-{RUNS - 2}", 2),
    ]
    assert len(output(tmp_path, "history", "parquet")["changes"]) == 1

    assert output(tmp_path, "compact", "appended") == {"table": "appended", "files_before": RUNS, "files_after": 1}
    assert vacuum(tmp_path, "appended", 1, dry_run=True).files == [], "the files are younger than an hour"
    small = set(data.glob("*.parquet"))
    unused = vacuum(tmp_path, "appended", 0, dry_run=True).files
    assert sum(file.endswith(".parquet") for file in unused) == RUNS
    assert set(data.glob("*.parquet")) == small
    vacuum(tmp_path, "appended", 0, dry_run=False)
    vacuum(tmp_path, "keyed", 0, dry_run=False)
    assert len(list(data.glob("*.parquet"))) == 1
    assert {each["rows"] for each in output(tmp_path, "list")["tables"]} == {RUNS, 3}

    assert kind(tmp_path, ORIGIN).stored(RunKey("appended", "appended", 3), "a") == StoredRun(1, 1)
    sink.store(RunKey("appended", "appended", RUNS), Attempt("a"), spark.range(1), 1)
    rows = spark.createDataFrame([(0, 99)], "k long, n long")
    sink.replace(RunKey("keyed", "keyed", RUNS), Attempt("a"), pa.table({"k": [0]}), COLUMNS, returns(rows))
    assert len(rows_of(tmp_path, "appended")) == RUNS + 1
    keyed = {row["k"]: row["n"] for row in rows_of(tmp_path, "keyed")}
    assert keyed == {0: 99} | {batch: batch for batch in range(1, RUNS)}


def test_a_parquet_table_and_a_missing_one_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    ParquetSink(tmp_path, ORIGIN).store(RunKey("parquet", "parquet", 0), Attempt("a"), spark.range(3), 3)
    for use in (lambda name: compact(tmp_path, name), lambda name: vacuum(tmp_path, name, 1, dry_run=False)):
        with pytest.raises(HeadraceError, match="'parquet' has the format Parquet"):
            use("parquet")
        with pytest.raises(HeadraceError, match="There is no table 'spent'") as caught:
            use("spent")
        assert caught.value.hint == "List the tables: headrace tables list"
