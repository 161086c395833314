"""`headrace tables list`, `history`, `compact` and `vacuum`, on tables that sinks go on writing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.table import TableOptimizer
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import HeadraceError, PipelineError
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.table_storage.tables import Tables, files_in
from headrace.pipeline.tables.delta.sink import DeltaSink
from headrace.pipeline.tables.maintenance import compact, vacuum
from headrace.pipeline.tables.parquet import ParquetSink
from support.pipelines.bucket_tables import bucket_tables, delta_table
from support.processes.command_line import headrace

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.slow]

ORIGIN = Origin("log", "shop", "first")
COLUMNS = pa.schema([("k", pa.int64()), ("n", pa.int64())])
RUNS = 12


def test_two_compactions_at_once_do_not_double_the_rows(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake commits both: a compaction that began before another one has ended is refused."""
    fill(spark, tmp_path)
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


def fill(spark: SparkSession, tables: Tables) -> DeltaSink:
    """Write a keyed table, a Delta table with small files, and on a disk a Parquet table."""
    sink = DeltaSink(tables, ORIGIN)
    for batch in range(RUNS):
        keys = pa.table({"k": [0, batch]}).group_by("k").aggregate([])
        rows = spark.createDataFrame([(each["k"], batch) for each in keys.to_pylist()], "k long, n long")
        sink.replace(RunKey("keyed", "keyed", batch), Attempt("a", 1, f"run-{batch}"), keys, COLUMNS, returns(rows))
        sink.store(RunKey("appended", "appended", batch), Attempt("a"), spark.range(batch, batch + 1), 1)
    if isinstance(tables, Path):
        ParquetSink(tables, ORIGIN).store(RunKey("parquet", "parquet", 0), Attempt("a"), spark.range(3), 3)
    return sink


def parquet_files(folder: Tables) -> set[str]:
    return {name for name in files_in(folder).sizes() if name.endswith(".parquet")}


def output(tables: Tables, *arguments: str) -> Any:
    """Return what a command prints as JSON."""
    connections = {name: value for name, value in os.environ.items() if name.startswith("HEADRACE_CONNECTION_")}
    result = headrace("tables", *arguments, "--tables", f"{tables}", "--json", cwd=Path.cwd(), **connections)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_tables_are_listed_compacted_and_vacuumed_while_they_are_written(spark: SparkSession, tables: Tables) -> None:
    sink = fill(spark, tables)
    before = {each["name"]: each for each in output(tables, "list")["tables"]}
    parquet = {"parquet": ("parquet", 3)} if isinstance(tables, Path) else {}
    expected = {"appended": ("delta", RUNS), "keyed": ("delta", RUNS)} | parquet
    assert {name: (each["format"], each["rows"]) for name, each in before.items()} == expected
    assert all(each["bytes"] > 100 and each["written"] for each in before.values())
    history = output(tables, "history", "keyed", "-n", "2")["changes"]
    assert [(change["pipeline"], change["batch"], change["run_id"], change["rows"]) for change in history] == [
        ("keyed", RUNS - 1, f"run-{RUNS - 1}", 2),
        ("keyed", RUNS - 2, f"run-{RUNS - 2}", 2),
    ]
    if isinstance(tables, Path):
        assert len(output(tables, "history", "parquet")["changes"]) == 1

    assert output(tables, "compact", "appended") == {"table": "appended", "files_before": RUNS, "files_after": 1}
    assert vacuum(tables, "appended", 1, dry_run=True).files == [], "the files are younger than an hour"
    small = parquet_files(tables / "appended")
    assert len(vacuum(tables, "appended", 0, dry_run=True).files) == RUNS
    assert parquet_files(tables / "appended") == small
    vacuum(tables, "appended", 0, dry_run=False)
    vacuum(tables, "keyed", 0, dry_run=False)
    assert len(parquet_files(tables / "appended")) == 1
    assert {each["rows"] for each in output(tables, "list")["tables"]} == {rows for _, rows in expected.values()}

    assert DeltaSink(tables, ORIGIN).stored(RunKey("appended", "appended", 3), "a") == StoredRun(1, 1)
    sink.store(RunKey("appended", "appended", RUNS), Attempt("a"), spark.range(1), 1)
    rows = spark.createDataFrame([(0, 99)], "k long, n long")
    sink.replace(RunKey("keyed", "keyed", RUNS), Attempt("a"), pa.table({"k": [0]}), COLUMNS, returns(rows))
    assert delta_table(tables / "appended").to_pyarrow_table().num_rows == RUNS + 1
    keyed = {row["k"]: row["n"] for row in delta_table(tables / "keyed").to_pyarrow_table().to_pylist()}
    assert keyed == {0: 99} | {batch: batch for batch in range(1, RUNS)}


def test_a_parquet_table_and_a_missing_one_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    ParquetSink(tmp_path, ORIGIN).store(RunKey("parquet", "parquet", 0), Attempt("a"), spark.range(3), 3)
    for use in (lambda name: compact(tmp_path, name), lambda name: vacuum(tmp_path, name, 1, dry_run=False)):
        with pytest.raises(HeadraceError, match="'parquet' has the format Parquet"):
            use("parquet")
        with pytest.raises(HeadraceError, match="There is no table 'spent'") as caught:
            use("spent")
        assert caught.value.hint == "List the tables: headrace tables list"


@pytest.mark.brokers
def test_another_compaction_of_a_table_in_a_bucket_is_refused(spark: SparkSession) -> None:
    with bucket_tables() as tables:
        sink = DeltaSink(tables, ORIGIN)
        for batch in range(2):
            sink.store(RunKey("appended", "appended", batch), Attempt("a"), spark.range(1), 1)
        assert tables.create(".compaction/appended.lock", b"process 7 on another host")
        with pytest.raises(PipelineError, match="'appended' has begun: process 7 on another host") as caught:
            compact(tables, "appended")
        assert f"delete the object {tables.url}/.compaction/appended.lock" in (caught.value.hint or "")
        tables.delete(".compaction/appended.lock")
        assert compact(tables, "appended").files_after == 1
        assert compact(tables, "appended").files_after == 1, "the lock is released"
