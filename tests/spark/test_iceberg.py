"""Iceberg tables: conflicts, files of keyed tables, types, the history, and the audit of tables."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace.errors import PipelineError, TypeConflict
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.tables.contents import read_table
from headrace.pipeline.tables.delta.sink import DeltaSink
from headrace.pipeline.tables.iceberg import replacement, runs, transaction
from headrace.pipeline.tables.iceberg.catalog import IcebergTables
from headrace.pipeline.tables.iceberg.history import changes_of
from headrace.pipeline.tables.iceberg.sink import IcebergSink
from headrace.pipeline.tables.iceberg.transaction import OneAttempt
from headrace.pipeline.tables.maintenance import compact, summarize, vacuum
from headrace.pipeline.tables.parquet.sink import ParquetSink
from headrace.pipeline.tables.rows import MAX_DRIVER_EVENTS
from headrace.pipeline_declaration import TableOptions

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-tables")]

ORIGIN = Origin("log", "shop", "first")
SCHEMA = "k long, shop string, n long, tags array<string>"
Key = tuple[int, str]


def place(batch: int = 0, table: str = "legs") -> RunKey:
    return RunKey(table, table, batch)


def opened(tables: Path, name: str = "legs") -> Table:
    table = IcebergTables(tables).open(name)
    assert table is not None
    return table


def test_a_transaction_on_an_old_version_fails_instead_of_being_repeated(spark: SparkSession, tmp_path: Path) -> None:
    """By itself, pyiceberg appends the rows again, on the new version: its `append` below shows it."""
    IcebergSink(tmp_path, ORIGIN).store(place(), Attempt("a"), spark.range(1), 1)
    old, another = opened(tmp_path), opened(tmp_path)
    rows = pa.table({"id": pa.array([7], pa.int64())})
    opened(tmp_path).append(rows)
    late = OneAttempt(old)
    late.append(rows)
    with pytest.raises(CommitFailedException):
        late.commit_transaction()
    assert opened(tmp_path).scan().to_arrow().num_rows == 2
    another.append(rows)
    assert opened(tmp_path).scan().to_arrow().num_rows == 3


def test_a_table_that_evolves_takes_new_columns_and_fields_and_no_other_type(spark: SparkSession, tmp_path: Path) -> None:
    sink = IcebergSink(tmp_path, ORIGIN, options={"legs": TableOptions(evolve=True)})
    sink.store(place(0), Attempt("a"), spark.range(2).withColumn("s", sf.struct(sf.lit(1).alias("a"))), 2)
    wider = sf.struct(sf.lit(1).alias("a"), sf.lit("x").alias("b"))
    sink.store(place(1), Attempt("a"), spark.range(2, 3).withColumn("s", wider).withColumn("more", sf.lit(7)), 1)
    sink.store(place(2), Attempt("a"), spark.range(3, MAX_DRIVER_EVENTS), MAX_DRIVER_EVENTS + 1)
    rows = {row["id"]: (row["s"], row["more"]) for row in opened(tmp_path).scan().to_arrow().to_pylist()}
    assert len(rows) == MAX_DRIVER_EVENTS
    assert [rows[number] for number in (1, 2, 3)] == [({"a": 1, "b": None}, None), ({"a": 1, "b": "x"}, 7), (None, None)]
    with pytest.raises(PipelineError, match="the column 'more' is int in the table and string in the rows"):
        sink.store(place(3), Attempt("a"), spark.range(1).withColumn("more", sf.lit("x")), 1)
    with pytest.raises(TypeConflict, match="has not the columns or fields of 'other'") as caught:
        IcebergSink(tmp_path, ORIGIN).store(place(3), Attempt("a"), spark.range(1).withColumn("other", sf.lit("x")), 1)
    assert "evolve=True" in (caught.value.hint or "")
    assert opened(tmp_path).scan().to_arrow().num_rows == MAX_DRIVER_EVENTS


def test_readers_need_the_catalog_alone(spark: SparkSession, tmp_path: Path) -> None:
    IcebergSink(tmp_path, ORIGIN).store(place(), Attempt("a"), spark.range(3), 3)
    with SqlCatalog("headrace", uri=f"sqlite:///{tmp_path}/.iceberg/catalog.db") as catalog:
        assert catalog.load_table("headrace.legs").scan().to_arrow().num_rows == 3


@pytest.mark.slow
@pytest.mark.parametrize("names", [["k"], ["k", "shop"]], ids=["one-column", "two-columns"])
def test_a_keyed_table_of_many_files_has_the_rows_of_a_dictionary(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """Files and groups are so small that a run writes several of them."""
    monkeypatch.setattr(replacement, "GROUP_BYTES", 4_000)
    dice, model = random.Random(1), dict[Key, int]()
    columns = pa.schema([("k", pa.int64()), ("shop", pa.string()), ("n", pa.int64()), ("tags", pa.list_(pa.field("element", pa.string())))])
    sink = IcebergSink(tmp_path, ORIGIN)
    for batch in range(8):
        chosen = {(dice.randrange(2_000), "a" if names == ["k"] else dice.choice("ab")) for _ in range(600)}
        keys = pa.table({"k": [k for k, _ in chosen], "shop": [shop for _, shop in chosen]}).select(names)
        after = {key: batch for key in chosen if dice.random() < 0.8}

        known = {key: model[key] for key in chosen if key in model}

        def compute(rows: pa.Table, known: dict[Key, int] = known, after: dict[Key, int] = after) -> DataFrame:
            assert {(row["k"], row["shop"]): row["n"] for row in rows.to_pylist()} == known
            return spark.createDataFrame([(k, shop, n, [shop]) for (k, shop), n in after.items()], SCHEMA)

        sink.replace(place(batch), Attempt("a"), keys, columns, compute)
        if batch == 0:
            opened(tmp_path).transaction().set_properties({"write.target-file-size-bytes": "8000"}).commit_transaction()
        model = {key: n for key, n in model.items() if key not in chosen} | after
        stored = opened(tmp_path).scan().to_arrow().to_pylist()
        assert len(stored) == len(model)
        assert {(row["k"], row["shop"]): row["n"] for row in stored} == model
    files = list(opened(tmp_path).scan().plan_files())
    assert len(files) > 4


def test_a_run_writes_only_the_files_with_its_keys_again(spark: SparkSession, tmp_path: Path) -> None:
    sink = IcebergSink(tmp_path, ORIGIN)
    columns = pa.schema([("k", pa.int64())])

    def same(numbers: list[int]) -> Callable[[pa.Table], DataFrame]:
        return lambda _: spark.createDataFrame([(number,) for number in numbers], "k long")

    for batch in range(3):
        numbers = list(range(100 * batch, 100 * batch + 10))
        sink.replace(place(batch), Attempt("a"), pa.table({"k": numbers}), columns, same(numbers))
    before = {task.file.file_path for task in opened(tmp_path).scan().plan_files()}
    sink.replace(place(3), Attempt("a"), pa.table({"k": [105]}), columns, same([105]))
    sink.replace(place(4), Attempt("a"), pa.table({"k": [150]}), columns, same([]))
    after = {task.file.file_path for task in opened(tmp_path).scan().plan_files()}
    assert (len(before), len(after), len(before & after)) == (3, 3, 2)


def test_small_integers_and_zones_are_widened_and_other_types_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = IcebergSink(tmp_path, ORIGIN)
    some = spark.range(1).select(sf.lit(1).cast("byte").alias("tiny"), sf.struct(sf.lit(2).cast("short").alias("small")).alias("s"))
    for batch in range(2):
        sink.store(place(batch), Attempt("a"), some, 1)
    assert opened(tmp_path).scan().to_arrow().to_pylist() == [{"tiny": 1, "s": {"small": 2}}] * 2
    assert str(opened(tmp_path).schema().find_type("s.small")) == "int"
    with pytest.raises(TypeConflict, match=r"Iceberg has no type for the column 'gap' \(interval day to second\)"):
        sink.store(place(0, "gaps"), Attempt("a"), spark.sql("SELECT INTERVAL '1' DAY AS gap"), 1)
    assert IcebergTables(tmp_path).open("gaps") is None
    with pytest.raises(TypeConflict, match="do not fit the Iceberg table 'legs': it has not the columns or fields of 'more'") as caught:
        sink.store(place(2), Attempt("a"), some.withColumn("more", sf.lit(1)), 1)
    assert "ADD COLUMN" in (caught.value.hint or "")


def test_a_table_has_one_format(spark: SparkSession, tmp_path: Path) -> None:
    for kind, name in ((IcebergSink, "ice"), (DeltaSink, "delta"), (ParquetSink, "parquet")):
        kind(tmp_path, ORIGIN).store(place(0, name), Attempt("a"), spark.range(1), 1)
    for kind, name in ((IcebergSink, "delta"), (IcebergSink, "parquet"), (DeltaSink, "ice"), (ParquetSink, "ice")):
        with pytest.raises(PipelineError, match=r"holds (an Iceberg table|a table of another format)"):
            kind(tmp_path, ORIGIN).store(place(1, name), Attempt("a"), spark.range(1), 1)


@pytest.mark.slow
def test_runs_are_known_after_their_snapshots_were_removed(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "MAX_SNAPSHOTS", 10)
    monkeypatch.setattr(runs, "MAX_RUNS", 4)
    rows = spark.range(1)
    for batch in range(16):
        IcebergSink(tmp_path, ORIGIN).store(place(batch), Attempt("a"), rows, 1)
    assert len(opened(tmp_path).metadata.snapshots) <= 11
    sink = IcebergSink(tmp_path, ORIGIN)
    for batch in range(10, 16):
        assert sink.stored(place(batch), "a") == StoredRun(1, 1)
    assert sink.stored(place(16), "a") is None
    with pytest.raises(PipelineError, match="than batch 0, whose snapshots were removed") as caught:
        sink.stored(place(0), "a")
    assert "headrace scopes reset shop --from SEQ" in (caught.value.hint or "")


def test_the_contents_name_the_runs_foreign_rows_and_lost_files(spark: SparkSession, tmp_path: Path) -> None:
    IcebergSink(tmp_path, ORIGIN).store(place(), Attempt("a", 2, "run"), spark.range(3), 3)
    IcebergSink(tmp_path, ORIGIN).shut_out([place(1)])
    opened(tmp_path).append(pa.table({"id": pa.array([7], pa.int64())}))
    contents = read_table(tmp_path / "legs", lambda *_: None)
    assert [(entry.rows, entry.run and asdict(entry.run)["run_id"]) for entry in contents.entries] == [(3, "run"), (1, None)]
    assert (contents.lost, contents.unreadable, contents.since) == ([], [], None)
    (tmp_path / "legs" / "data").joinpath(next((tmp_path / "legs" / "data").iterdir()).name).unlink()
    assert len(read_table(tmp_path / "legs", lambda *_: None).lost) == 1


def test_a_table_without_snapshots_of_runs_has_no_history_from_before_its_compaction(spark: SparkSession, tmp_path: Path) -> None:
    for batch in range(2):
        IcebergSink(tmp_path, ORIGIN).store(place(batch), Attempt("a"), spark.range(3), 3)
    compact(tmp_path, "legs")
    vacuum(tmp_path, "legs", 0, dry_run=False)
    contents = read_table(tmp_path / "legs", lambda *_: None)
    (snapshot,) = opened(tmp_path).metadata.snapshots
    assert contents.entries == []
    assert contents.since == datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)


class Died(BaseException):
    """The driver was killed."""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("keyed", [False, True], ids=["append", "replace"])
def test_a_run_of_a_driver_killed_at_its_commit_is_stored_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, keyed: bool
) -> None:
    """`test_power_cut` has the other moments."""

    def store(sink: IcebergSink, batch: int) -> int:
        if not keyed:
            return sink.store(place(batch), Attempt("a"), spark.range(1), 1)
        keys = pa.table({"id": pa.array([0, 1], pa.int64())})
        return sink.replace(place(batch), Attempt("a"), keys, keys.schema, lambda rows: spark.range(rows.num_rows or 2))

    store(IcebergSink(tmp_path, ORIGIN), 0)
    commit = SqlCatalog.commit_table

    def dying(*arguments: Any) -> None:
        if moment == "after":
            commit(*arguments)
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", dying)
        with pytest.raises(Died):
            store(IcebergSink(tmp_path, ORIGIN), 1)
    second = IcebergSink(tmp_path, ORIGIN)
    rows = 2 if keyed else 1
    assert second.stored(place(1), "a") == (StoredRun(1, rows) if moment == "after" else None)
    assert store(second, 1) == rows
    assert opened(tmp_path).scan().to_arrow().num_rows == 2
    changes = list(changes_of(opened(tmp_path)))
    assert [change.run.batch if change.run else None for change in changes] == [0, 1]


def test_the_catalog_of_the_configuration_is_used(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, lake = tmp_path / "tables", tmp_path / "lake"
    lake.mkdir()
    monkeypatch.setenv("PYICEBERG_CATALOG__HEADRACE__URI", f"sqlite:///{lake}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__HEADRACE__WAREHOUSE", f"file://{lake}")
    for batch in range(2):
        sink = IcebergSink(tables, ORIGIN)
        assert sink.stored(place(batch), "a") is None
        sink.store(place(batch), Attempt("a"), spark.range(3), 3)
        sink.shut_out([place(batch + 1)])
    assert not (tables / ".iceberg").exists()
    assert len(list(lake.rglob("*.parquet"))) == 2
    assert [(each.name, each.format, each.rows) for each in summarize(tables)] == [("legs", "iceberg", 6)]
    assert compact(tables, "legs").files_after == 1
    assert len(vacuum(tables, "legs", 0, dry_run=True).files) > 2
    with pytest.raises(PipelineError, match="holds an Iceberg table"):
        ParquetSink(tables, ORIGIN).store(place(3), Attempt("a"), spark.range(1), 1)


HOSTILE = ["a/b", "..", "a=b", "50%", "line\nend", "ü?#&", "", " ", "x" * 200, None]


@pytest.mark.parametrize("size", [10, MAX_DRIVER_EVENTS + 1])
def test_a_partitioned_table_has_files_for_each_value_and_stores_a_run_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Rows are divided in several parts, and any text is a value."""
    monkeypatch.setattr(transaction, "PART_BYTES", 1_000_000)
    values = sf.array(*map(sf.lit, HOSTILE))
    rows = spark.range(size).select("id", sf.element_at(values, (sf.col("id") % len(HOSTILE)).cast("int") + 1).alias("kind"))
    sink = IcebergSink(tmp_path, ORIGIN, options={"legs": TableOptions(partition_by=("kind",))})
    for batch in (0, 1, 1):
        assert sink.store(place(batch), Attempt("a"), rows, size) == size
    table = opened(tmp_path)
    assert [field.name for field in table.spec().fields] == ["kind"]
    stored = table.scan().to_arrow()
    assert stored.num_rows == 2 * size
    assert set(stored.column("kind").to_pylist()) == set(HOSTILE)
    is_null, equal_to = cast("tuple[Any, Any]", (IsNull, EqualTo))  # their types do not know a column by its name
    for value in HOSTILE:
        scan = table.scan(row_filter=is_null("kind") if value is None else equal_to("kind", value))
        assert {task.file.partition[0] for task in scan.plan_files()} == {value}
        assert scan.to_arrow().num_rows == 2 * size // len(HOSTILE) + (0 if size % len(HOSTILE) == 0 else 2 * (value == HOSTILE[0]))


def test_a_compaction_merges_files_within_their_partitions(spark: SparkSession, tmp_path: Path) -> None:
    sink = IcebergSink(tmp_path, ORIGIN, options={"legs": TableOptions(partition_by=("day", "kind"))})
    for batch in range(3):
        rows = spark.range(4).select("id", sf.lit(batch % 2).alias("day"), (sf.col("id") % 2 == 0).alias("kind"))
        sink.store(place(batch), Attempt("a"), rows, 4)
    before = sorted(opened(tmp_path).scan().to_arrow().to_pylist(), key=str)
    assert len(list(opened(tmp_path).scan().plan_files())) == 6
    compact(tmp_path, "legs")
    tasks = list(opened(tmp_path).scan().plan_files())
    assert sorted((task.file.partition[0], task.file.partition[1]) for task in tasks) == [(0, False), (0, True), (1, False), (1, True)]
    assert sorted(opened(tmp_path).scan().to_arrow().to_pylist(), key=str) == before
    version = opened(tmp_path).metadata_location
    compact(tmp_path, "legs")
    assert opened(tmp_path).metadata_location == version, "there is nothing to merge"
    assert sink.store(place(2), Attempt("a"), spark.range(0).select("id", sf.lit(1).alias("day"), sf.lit(True).alias("kind")), 0) == 4


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("gate",), "have no column 'gate'"),
        (("ratio",), "'ratio' of partition_by= is double"),
        (("id", "ratio"), "partition_by= is double"),
        (("id",), "it is not partitioned, and partition_by= declares id"),
    ],
)
def test_columns_that_cannot_partition_are_refused(spark: SparkSession, tmp_path: Path, columns: tuple[str, ...], message: str) -> None:
    rows = spark.range(3).select("id", sf.lit(0.5).alias("ratio"))
    table = "legs"
    if "not partitioned" in message:
        IcebergSink(tmp_path, ORIGIN).store(place(0), Attempt("a"), rows, 3)
    sink = IcebergSink(tmp_path, ORIGIN, options={table: TableOptions(partition_by=columns)})
    with pytest.raises(TypeConflict, match=message):
        sink.store(place(1), Attempt("a"), rows, 3)
    assert IcebergTables(tmp_path).open(table) is None or opened(tmp_path).scan().count() == 3


@pytest.mark.parametrize("value", ["x" * 251, "ü" * 42, "/" * 84])
def test_a_value_that_is_too_long_for_the_name_of_a_folder_is_refused(spark: SparkSession, tmp_path: Path, value: str) -> None:
    sink = IcebergSink(tmp_path, ORIGIN, options={"legs": TableOptions(partition_by=("kind",))})
    with pytest.raises(TypeConflict, match=r"'kind' partitions it, and its value .* is too long for the name of a folder"):
        sink.store(place(), Attempt("a"), spark.range(1).withColumn("kind", sf.lit(value)), 1)
    assert sink.store(place(), Attempt("b"), spark.range(1).withColumn("kind", sf.lit(value[1:])), 1) == 1


def test_partitions_with_similar_values_are_not_merged(spark: SparkSession, tmp_path: Path) -> None:
    sink = IcebergSink(tmp_path, ORIGIN, options={"legs": TableOptions(partition_by=("a", "b"))})
    rows = spark.createDataFrame([(1, "x, y", "z"), (2, "x", "y, z"), (3, None, "z"), (4, "None", "z")], "id long, a string, b string")
    sink.store(place(), Attempt("a"), rows, 4)
    version = opened(tmp_path).metadata_location
    compact(tmp_path, "legs")
    assert opened(tmp_path).metadata_location == version
    assert opened(tmp_path).scan().to_arrow().num_rows == 4
