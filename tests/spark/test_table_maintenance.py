"""`headrace tables list`, `history`, `compact` and `vacuum`, on tables that sinks go on writing."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.table import TableOptimizer
from pyspark.sql import DataFrame, SparkSession
from structlog.testing import capture_logs

from headrace.errors import HeadraceError, PipelineError
from headrace.pipeline.execution.run_lock import RunLock
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.table_storage.tables import Tables, files_in
from headrace.pipeline.tables import compactor
from headrace.pipeline.tables.compaction import small_files
from headrace.pipeline.tables.compaction.table_lock import TableBusy
from headrace.pipeline.tables.compactor import TableCompactor
from headrace.pipeline.tables.contents import format_of
from headrace.pipeline.tables.delta import compaction
from headrace.pipeline.tables.delta.compaction import DeltaCompaction
from headrace.pipeline.tables.delta.sink import DeltaSink
from headrace.pipeline.tables.iceberg.maintenance import opened
from headrace.pipeline.tables.iceberg.sink import IcebergSink
from headrace.pipeline.tables.maintenance import compact, vacuum
from headrace.pipeline.tables.parquet.sink import ParquetSink
from headrace.pipeline_declaration import TableFormat
from support.pipelines.bucket_tables import bucket_tables, delta_table
from support.processes.command_line import headrace

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-tables"), pytest.mark.slow]

ORIGIN = Origin("log", "shop", "first")
COLUMNS = pa.schema([("k", pa.int64()), ("n", pa.int64())])
RUNS = 12


def fill_spread(spark: SparkSession, tables: Path) -> DeltaSink:
    """Write a keyed table in which each run has another key, and so a file of its own."""
    sink = DeltaSink(tables, ORIGIN)
    for batch in range(RUNS):
        rows = spark.createDataFrame([(batch, batch)], "k long, n long")
        sink.replace(RunKey("spread", "spread", batch), Attempt("a"), pa.table({"k": [batch]}), COLUMNS, returns(rows))
    return sink


def keyed_rows(tables: Path) -> dict[int, int]:
    rows = DeltaTable(tables / "spread").to_pyarrow_table().to_pylist()
    assert len({row["k"] for row in rows}) == len(rows)
    return {row["k"]: row["n"] for row in rows}


def test_two_compactions_at_once_do_not_double_the_rows(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake commits both: a compaction that began before another one has ended is refused."""
    fill(spark, tmp_path, DeltaSink)
    compact_files = TableOptimizer.compact

    def compact_twice(self: TableOptimizer, **options: Any) -> dict[str, Any]:
        with pytest.raises(HeadraceError, match="Another process compacts the table 'appended'"):
            compact(tmp_path, "appended")
        return compact_files(self, **options)

    monkeypatch.setattr(TableOptimizer, "compact", compact_twice)
    assert compact(tmp_path, "appended").files_after == 1
    assert DeltaTable(tmp_path / "appended").to_pyarrow_table().num_rows == RUNS
    monkeypatch.undo()
    assert compact(tmp_path, "appended").files_after == 1, "the lock ends with the compaction"


def returns(rows: DataFrame) -> Callable[[pa.Table], DataFrame]:
    return lambda _: rows


Kind = type[DeltaSink] | type[IcebergSink]


def fill(spark: SparkSession, tables: Tables, kind: Kind) -> DeltaSink | IcebergSink:
    """Write a keyed table, an append table with small files, and on a disk a Parquet table."""
    make: Any = kind
    sink: DeltaSink | IcebergSink = make(tables, ORIGIN)
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


def rows_of(tables: Tables, name: str) -> list[dict[str, Any]]:
    if not isinstance(tables, Path) or format_of(tables / name) == "delta":
        rows: list[dict[str, Any]] = delta_table(tables / name).to_pyarrow_table().to_pylist()
    else:
        rows = opened(tables / name).scan().to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize("place", ["delta", "iceberg", pytest.param("bucket", marks=pytest.mark.brokers)])
def test_tables_are_listed_compacted_and_vacuumed_while_they_are_written(spark: SparkSession, tmp_path: Path, place: str) -> None:
    kind: Kind = IcebergSink if place == "iceberg" else DeltaSink
    with bucket_tables() if place == "bucket" else nullcontext(tmp_path) as tables:
        check_commands(spark, tables, kind)


def check_commands(spark: SparkSession, tables: Tables, kind: Kind) -> None:
    sink = fill(spark, tables, kind)
    format = "delta" if kind is DeltaSink else "iceberg"
    before = {each["name"]: each for each in output(tables, "list")["tables"]}
    parquet = {"parquet": ("parquet", 3)} if isinstance(tables, Path) else {}
    expected = {"appended": (format, RUNS), "keyed": (format, RUNS)} | parquet
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
    unused = vacuum(tables, "appended", 0, dry_run=True).files
    assert sum(file.endswith(".parquet") for file in unused) == RUNS
    assert parquet_files(tables / "appended") == small
    vacuum(tables, "appended", 0, dry_run=False)
    vacuum(tables, "keyed", 0, dry_run=False)
    assert len(parquet_files(tables / "appended")) == 1
    assert {each["rows"] for each in output(tables, "list")["tables"]} == {rows for _, rows in expected.values()}

    again: Any = kind
    assert again(tables, ORIGIN).stored(RunKey("appended", "appended", 3), "a") == StoredRun(1, 1)
    sink.store(RunKey("appended", "appended", RUNS), Attempt("a"), spark.range(1), 1)
    rows = spark.createDataFrame([(0, 99)], "k long, n long")
    sink.replace(RunKey("keyed", "keyed", RUNS), Attempt("a"), pa.table({"k": [0]}), COLUMNS, returns(rows))
    assert len(rows_of(tables, "appended")) == RUNS + 1
    keyed = {row["k"]: row["n"] for row in rows_of(tables, "keyed")}
    assert keyed == {0: 99} | {batch: batch for batch in range(1, RUNS)}


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    for use in (lambda: compact(tmp_path, "spent"), lambda: vacuum(tmp_path, "spent", 1, dry_run=False)):
        with pytest.raises(HeadraceError, match="There is no table 'spent'") as caught:
            use()
        assert caught.value.hint == "List the tables: headrace tables list"


def test_a_parquet_table_is_compacted_by_the_command(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, ORIGIN)
    for batch in range(RUNS):
        sink.store(RunKey("parquet", "parquet", batch), Attempt("a", 1, f"run-{batch}"), spark.range(3), 3)
    assert output(tmp_path, "compact", "parquet") == {"table": "parquet", "files_before": RUNS, "files_after": 1}
    assert spark.read.parquet(str(tmp_path / "parquet")).count() == 3 * RUNS
    history = output(tmp_path, "history", "parquet")["changes"]
    assert {change["run_id"] for change in history} == {f"run-{batch}" for batch in range(RUNS)}
    (summary,) = output(tmp_path, "list")["tables"]
    assert (summary["rows"], summary["files"]) == (3 * RUNS, 1)
    assert output(tmp_path, "vacuum", "parquet")["files"] == []


def test_spark_reads_a_folder_that_it_opened_before_a_compaction(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, ORIGIN)
    for batch in range(3):
        sink.store(RunKey("parquet", "parquet", batch), Attempt("a"), spark.range(3), 3)
    folder = os.open(tmp_path / "parquet", os.O_RDONLY)
    try:
        frame = spark.read.parquet(f"/proc/{os.getpid()}/fd/{folder}")
        compact(tmp_path, "parquet")
        assert frame.count() == 9
    finally:
        os.close(folder)


def test_a_run_and_a_compaction_of_a_keyed_table_both_succeed(spark: SparkSession, tmp_path: Path) -> None:
    """Each compaction commits between the moment at which the run reads its rows and its own commit."""
    sink = fill_spread(spark, tmp_path)
    calls = []

    def compute(rows: pa.Table) -> DataFrame:
        calls.append(rows.to_pylist())
        if len(calls) == 1:
            assert DeltaCompaction(tmp_path, "spread").run() is not None
        return spark.createDataFrame([(0, 99)], "k long, n long")

    sink.replace(RunKey("spread", "spread", RUNS), Attempt("a"), pa.table({"k": [0]}), COLUMNS, compute)
    assert calls == [[{"k": 0, "n": 0}]] * 2, "the run was computed again on the compacted version"
    assert keyed_rows(tmp_path) == {0: 99} | {batch: batch for batch in range(1, RUNS)}


def test_a_compaction_that_conflicts_with_a_run_is_attempted_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = fill_spread(spark, tmp_path)
    batches = iter(range(RUNS, RUNS + 2))
    merged = small_files.merge_limit

    def run_between(sizes: Sequence[int]) -> int:
        """Commit a run after the compaction loaded the table."""
        for batch in batches:
            rows = spark.createDataFrame([(0, batch)], "k long, n long")
            sink.replace(RunKey("spread", "spread", batch), Attempt("a"), pa.table({"k": [0]}), COLUMNS, returns(rows))
            break
        return merged(sizes)

    monkeypatch.setattr(compaction, "merge_limit", run_between)
    assert DeltaCompaction(tmp_path, "spread").run(2) is not None
    assert keyed_rows(tmp_path) == {0: RUNS + 1} | {batch: batch for batch in range(1, RUNS)}


def test_runs_and_compactions_of_a_keyed_table_go_on_at_the_same_time(spark: SparkSession, tmp_path: Path) -> None:
    sink = fill_spread(spark, tmp_path)
    stop, compactions = threading.Event(), []

    def compact_all() -> None:
        while not stop.is_set():
            with suppress(TableBusy):
                compactions.append(DeltaCompaction(tmp_path, "spread").run())

    threads = [threading.Thread(target=compact_all) for _ in range(2)]
    for thread in threads:
        thread.start()
    expected = {batch: batch for batch in range(RUNS)}
    dice = random.Random(1)
    try:
        for batch in range(RUNS, 4 * RUNS):
            keys = dice.sample(range(2 * RUNS), 3)
            new = dict.fromkeys(keys[1:], batch)  # the rows of the first key are deleted
            expected = {key: value for key, value in expected.items() if key not in keys} | new
            rows = spark.createDataFrame(list(new.items()), "k long, n long")
            sink.replace(RunKey("spread", "spread", batch), Attempt("a"), pa.table({"k": keys}), COLUMNS, returns(rows))
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert keyed_rows(tmp_path) == expected
    assert any(compactions)


def test_a_vacuum_keeps_files_that_are_not_committed_yet(spark: SparkSession, tmp_path: Path) -> None:
    fill(spark, tmp_path, DeltaSink)
    written = tmp_path / "appended" / "part-00000-6a1c7c5e-uncommitted.parquet"
    pq.write_table(pa.table({"id": [1]}), written)
    assert DeltaCompaction(tmp_path, "appended").vacuum() == []
    assert written.exists()


@pytest.mark.parametrize("kind", [DeltaSink, IcebergSink])
def test_tables_are_compacted_in_the_background(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    monkeypatch.setattr(compactor, "MIN_SMALL_FILES", 4)
    fill_spread(spark, tmp_path)
    sink = fill(spark, tmp_path, kind)
    parquet = ParquetSink(tmp_path, ORIGIN)
    for batch in range(1, RUNS):
        parquet.store(RunKey("parquet", "parquet", batch), Attempt("a"), spark.range(1), 1)
    (tmp_path / "linked").symlink_to("parquet")
    appended: TableFormat = "delta" if kind is DeltaSink else "iceberg"
    formats: dict[str, TableFormat] = {
        "linked": "parquet",
        "parquet": "parquet",
        "appended": appended,
        "spread": "delta",
        "none": "parquet",
    }

    def wait_for(*events: tuple[str, str]) -> None:
        """Wait until each of these was logged for its table."""
        deadline = time.monotonic() + 60
        while not set(events) <= {(entry["event"], entry.get("table")) for entry in logs}:
            assert time.monotonic() < deadline, logs
            time.sleep(0.02)

    with capture_logs() as logs, TableCompactor(tmp_path, formats, RunLock().exclusive) as background:
        wait_for(*(("table compacted", table) for table in ("parquet", "appended", "spread")), ("table is not compacted", "linked"))
        logs.clear()
        for batch in range(RUNS, RUNS + 6):
            sink.store(RunKey("appended", "appended", batch), Attempt("a"), spark.range(batch, batch + 1), 1)
        background.runs_ended(compactor.CHECK_RUNS)
        wait_for(("table compacted", "appended"))
    assert len(list((tmp_path / "parquet").glob("*.parquet"))) == 1
    assert sorted(row["id"] for row in rows_of(tmp_path, "appended")) == list(range(RUNS + 6))
    assert {entry["event"] for entry in logs} == {"table compacted"}


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
