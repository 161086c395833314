"""The contract of sinks: the rows of a run are stored once, identified by their events, in a table that every reader can read."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import Fenced, RunConflict, TypeConflict
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, StoredRun, Writer
from headrace.pipeline.table_storage.tables import files_in
from headrace.pipeline.tables.batches import TableBatches
from headrace.pipeline.tables.compaction.table_lock import TableBusy
from headrace.pipeline.tables.delta.sink import DeltaSink
from headrace.pipeline.tables.format_compaction import open_compaction
from headrace.pipeline.tables.iceberg.catalog import IcebergTables
from headrace.pipeline.tables.iceberg.sink import IcebergSink
from headrace.pipeline.tables.parquet.sink import ParquetSink
from headrace.pipeline.tables.rows import MAX_DRIVER_EVENTS, Rows
from headrace.pipeline.tables.sink import ICEBERG_MARK
from headrace.pipeline.tables.writers import TableWriters
from headrace.pipeline_declaration import TableFormat
from headrace.project import Project
from support.pipelines.bucket_tables import bucket_tables, delta_table, move_table
from support.processes.iceberg_rest import is_configured, rename_table, rest_catalog

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-tables")]

Sink = ParquetSink | DeltaSink | IcebergSink
Open = Callable[..., Sink]
SIZES = pytest.mark.parametrize("events", [10, MAX_DRIVER_EVENTS + 1], ids=["here", "by-spark"])


class Compacted:
    """Makes a sink whose tables are compacted before each operation."""

    _tables: Any
    format: TableFormat

    def stored(self, key: RunKey, digest: str) -> StoredRun | None:
        self._compact(key.table)
        stored: StoredRun | None = super().stored(key, digest)  # type: ignore[misc]
        return stored

    def store(self, key: RunKey, attempt: Attempt, rows: DataFrame, events: int) -> int:
        self._compact(key.table)
        count: int = super().store(key, attempt, rows, events)  # type: ignore[misc]
        return count

    def later(self, table: str, pipeline: str, batch: int, until: int) -> int | None:
        self._compact(table)
        later: int | None = super().later(table, pipeline, batch, until)  # type: ignore[misc]
        return later

    def _compact(self, table: str) -> None:
        folder = self._tables / table
        is_created = {"parquet": folder, "delta": folder / "_delta_log" / f"{0:020}.json", "iceberg": folder / ICEBERG_MARK}
        if is_created[self.format].exists():
            with suppress(TableBusy):
                open_compaction(self._tables, table, self.format).run()


class CompactedParquetSink(Compacted, ParquetSink):
    format = "parquet"

    def append(self, key: RunKey, attempt: Attempt, rows: Rows) -> int:
        self._compact(key.table)
        return super().append(key, attempt, rows)


class CompactedDeltaSink(Compacted, DeltaSink):
    format = "delta"


class CompactedIcebergSink(Compacted, IcebergSink):
    format = "iceberg"


@pytest.fixture(
    params=[
        ParquetSink,
        DeltaSink,
        IcebergSink,
        CompactedParquetSink,
        CompactedDeltaSink,
        CompactedIcebergSink,
        pytest.param("bucket", marks=pytest.mark.brokers),
        pytest.param("rest", marks=pytest.mark.brokers),
    ],
    ids=["parquet", "delta", "iceberg", "parquet-compacted", "delta-compacted", "iceberg-compacted", "delta-bucket", "iceberg-rest"],
)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    kinds = {"bucket": DeltaSink, "rest": IcebergSink}

    def make(log: str = "log", scope: str = "flights", incarnation: str = "first", **more: Any) -> Sink:
        sink: Sink = kinds.get(request.param, request.param)(tables, Origin(log, scope, incarnation), **more)
        return sink

    with (
        bucket_tables() if request.param == "bucket" else nullcontext(tmp_path) as tables,
        rest_catalog() if request.param == "rest" else nullcontext(),
    ):
        yield make


def place(batch: int = 0, pipeline: str = "legs", part: str = "", table: str = "legs") -> RunKey:
    return RunKey(table, pipeline, batch, part)


def read(sink: Sink, spark: SparkSession, table: str = "legs") -> list[dict[str, Any]]:
    """Return the rows as pyarrow reads them, after pandas and Spark read as many."""
    folder = sink._tables / table
    if isinstance(sink, DeltaSink):
        delta = delta_table(folder)
        rows = delta.to_pyarrow_table()
        assert len(delta.to_pandas()) == len(rows)
        if isinstance(folder, Path):  # the session has no jar for buckets
            assert spark.read.parquet(*delta.file_uris()).count() == len(rows)
    elif isinstance(sink, IcebergSink):
        iceberg = IcebergTables(sink._tables).open(table)
        assert iceberg is not None
        rows = iceberg.scan().to_arrow()
        assert len(iceberg.scan().to_pandas()) == len(rows)
        paths = [task.file.file_path for task in iceberg.scan().plan_files()]
        assert spark.read.parquet(*paths).count() == len(rows)
    else:
        rows = pq.read_table(folder)
        assert len(pd.read_parquet(folder)) == len(rows)
        for merge in ("false", "true"):
            assert len(spark.read.option("mergeSchema", merge).parquet(str(folder)).collect()) == len(rows)
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def test_a_run_is_stored_once_and_identified_by_its_events(opened: Open, spark: SparkSession) -> None:
    sink = opened()
    assert sink.stored(place(), "a") is None
    assert sink.store(place(), Attempt("a", 2, "id"), spark.range(3), 3) == 3
    assert opened().stored(place(), "a") == StoredRun(attempt=2, rows=3)
    assert opened().store(place(), Attempt("a", 1), spark.range(3), 3) == 3
    for other in (place(1), place(pipeline="late"), place(part="again1"), place(table="other")):
        assert opened().stored(other, "a") is None
    assert opened(incarnation="other").stored(place(), "a") is None
    assert opened(scope="other").stored(place(), "a") is None
    assert sink.store(place(1), Attempt("b"), spark.range(0), 3) == 0
    assert opened().stored(place(1), "b") == StoredRun(attempt=1, rows=0)
    assert len(read(sink, spark)) == 3


def test_other_events_with_the_key_of_a_stored_run_are_refused(opened: Open, spark: SparkSession) -> None:
    sink = opened()
    sink.store(place(7), Attempt("aaaa"), spark.range(3), 3)
    for look in (lambda: sink.stored(place(7), "bbbb"), lambda: sink.store(place(7), Attempt("bbbb"), spark.range(1), 1)):
        with pytest.raises(RunConflict, match=r"'legs' has rows of other events for batch 7 of the pipeline 'legs'.*aaaa.*bbbb") as caught:
            look()
        assert "headrace scopes reset flights --from SEQ" in (caught.value.hint or "")
    assert len(read(sink, spark)) == 3


@pytest.mark.slow
def test_pipelines_and_projects_share_a_table(opened: Open, spark: SparkSession) -> None:
    """Store A1: `legs-eu` before `legs`."""
    sinks = [opened(), opened(scope="other"), opened(log="other", scope="third"), opened(incarnation="second")]
    wanted = [(sink, place(batch, name, part)) for sink in sinks for batch in (0, 1) for name in ("legs-eu", "legs") for part in ("", "1")]
    for number, (sink, where) in enumerate(wanted):
        assert sink.stored(where, str(number)) is None
        sink.store(where, Attempt(str(number)), spark.range(number, number + 1), 1)
    assert [sink.stored(where, str(number)) for number, (sink, where) in enumerate(wanted)] == [StoredRun(1, 1)] * len(wanted)
    assert sorted(row["id"] for row in read(sinks[0], spark)) == list(range(len(wanted)))


NAMES = st.text(min_size=0, max_size=300) | st.sampled_from(
    ["a/b", "../x", "*", "[a-z]", "a-0", "legs", "legs-eu", " ", "é", "é", "\x00", "a" * 300]
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(names=st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=2, max_size=4, unique=True), number=st.integers(0, 2**40))
def test_any_names_of_scopes_and_pipelines_are_stored(
    opened: Open, spark: SparkSession, names: list[tuple[str, str, str]], number: int
) -> None:
    incarnation = f"{random.getrandbits(64)}"
    rows = spark.range(1)
    for count, (scope, pipeline, part) in enumerate(names):
        where = RunKey("legs", pipeline, number, part)
        assert opened("log", scope, incarnation).stored(where, "a") is None
        opened("log", scope, incarnation).store(where, Attempt(f"{count}"), rows, 1)
    for count, (scope, pipeline, part) in enumerate(names):
        assert opened("log", scope, incarnation).stored(RunKey("legs", pipeline, number, part), f"{count}") == StoredRun(1, 1)


def test_a_run_stored_by_competing_drivers_is_stored_once(opened: Open, spark: SparkSession) -> None:
    for batch in range(5):
        with ThreadPoolExecutor(3) as pool:
            made = [pool.submit(opened().store, place(batch), Attempt("a", number), spark.range(2), 2) for number in range(1, 4)]
            assert [each.result() for each in made] == [2, 2, 2]
    assert len(read(opened(), spark)) == 10


def test_pipelines_store_concurrently_in_a_new_table(opened: Open, spark: SparkSession) -> None:
    sink = opened()
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(sink.store, place(0, f"p{number}"), Attempt("a"), spark.range(2), 2) for number in range(4)]
        assert [each.result() for each in made] == [2] * 4
    assert len(read(sink, spark)) == 8


def test_a_fenced_driver_stores_no_rows(opened: Open, spark: SparkSession) -> None:
    def lost() -> None:
        raise Fenced("The scope is another driver's.")

    with pytest.raises(Fenced):
        opened(fence=lost).store(place(), Attempt("a"), spark.range(3), 3)
    assert opened().stored(place(), "a") is None
    assert not files_in(opened()._tables / ".staging").sizes()


@SIZES
def test_duplicate_column_names_are_refused(opened: Open, spark: SparkSession, events: int) -> None:
    """Store A18."""
    twice = spark.range(2).select("id", fn.lit("x").alias("id"), fn.lit(1).alias("N"), fn.lit(2).alias("n"))
    nested = spark.range(2).select(fn.struct(fn.lit(1).alias("a"), fn.lit(2).alias("A")).alias("payload"))
    with pytest.raises(TypeConflict, match="columns of one name: 'id', 'id', 'N', 'n'"):
        opened().store(place(), Attempt("a"), twice, events)
    with pytest.raises(TypeConflict, match="the column 'payload' has fields of one name: 'a', 'A'"):
        opened().store(place(), Attempt("a"), nested, events)
    assert opened().stored(place(), "a") is None


WIDENED = {
    "bigint": "int",
    "smallint": "tinyint",
    "double": "float",
    "float": "int",
    "decimal(12,2)": "int",
    "decimal(12,3)": "decimal(10,2)",
    "array<double>": "array<int>",
    "struct<a:bigint,b:string>": "struct<a:int>",
    "map<string,bigint>": "map<string,int>",
}


@SIZES
def test_narrower_types_are_cast_to_the_types_of_the_table(opened: Open, spark: SparkSession, events: int) -> None:
    def nulls(kinds: Iterable[str]) -> DataFrame:
        return spark.range(1).select(*(fn.expr(f"cast(null as {kind})").alias(f"n{number}") for number, kind in enumerate(kinds)))

    sink = opened()
    sink.store(place(0), Attempt("a"), nulls(WIDENED), events)
    sink.store(place(1), Attempt("b"), nulls(WIDENED.values()), events)
    if events <= MAX_DRIVER_EVENTS:  # Spark writes no file with a column without a type
        sink.store(place(2), Attempt("c"), nulls(["void"] * 9), events)
    for row in read(sink, spark):
        assert set(row.values()) == {None}


def test_an_incompatible_type_is_refused_with_a_hint(opened: Open, spark: SparkSession) -> None:
    """Store A17."""
    sink = opened()
    sink.store(place(0), Attempt("a"), spark.range(1), 1)
    for kind in ("double", "string", "void"):
        rows = spark.range(1).select(fn.expr(f"cast(null as {kind})").alias("more" if kind == "void" else "id"))
        with pytest.raises(
            TypeConflict, match=r"its rows do not fit the ((Delta|Iceberg) )?table 'legs': the column '(id|more)' is "
        ) as caught:
            sink.store(place(1), Attempt("b"), rows, 1)
        assert "redrive" in (caught.value.hint or "")
    assert opened().stored(place(1), "b") is None
    assert read(sink, spark) == [{"id": 0}]


@SIZES
def test_an_integer_is_cast_to_double_only_if_the_result_is_exact(opened: Open, spark: SparkSession, events: int) -> None:
    sink = opened()
    sink.store(place(0), Attempt("a"), spark.range(1).select(fn.lit(0.5).alias("n")), events)
    sink.store(place(1), Attempt("b"), spark.range(1).select(fn.lit(2**53).alias("n")), events)
    with pytest.raises(TypeConflict, match=r"the column 'n' is double in the table and bigint in the rows: .*9007199254740993"):
        sink.store(place(2), Attempt("c"), spark.range(1).select(fn.lit(2**53 + 1).alias("n")), events)
    assert sorted(row["n"] for row in read(sink, spark)) == [0.5, 2.0**53]


@SIZES
def test_missing_columns_are_null(opened: Open, spark: SparkSession, events: int) -> None:
    sink = opened()
    sink.store(
        place(0),
        Attempt("a"),
        spark.range(1).select("id", fn.lit("x").alias("text"), fn.struct(fn.lit(1).alias("a"), fn.lit(2).alias("b")).alias("s")),
        events,
    )
    sink.store(place(1), Attempt("b"), spark.range(1).select(fn.struct(fn.lit(3).alias("b")).alias("s"), fn.lit(7).alias("id")), events)
    rows = sorted(read(sink, spark), key=lambda row: row["id"])
    assert rows == [{"id": 0, "text": "x", "s": {"a": 1, "b": 2}}, {"id": 7, "text": None, "s": {"a": None, "b": 3}}]


@SIZES
def test_new_columns_are_added_to_a_parquet_table(tmp_path: Path, spark: SparkSession, events: int) -> None:
    sinks = [ParquetSink(tmp_path, Origin("log", scope, "first")) for scope in ("one", "two")]
    sinks[0].store(place(0), Attempt("a"), spark.range(1), events)
    sinks[1].store(place(1), Attempt("b"), spark.range(1).select("id", fn.lit("x").alias("more")), events)
    with pytest.raises(TypeConflict, match="'more' is string in the table and int in the rows"):
        sinks[0].store(place(2), Attempt("c"), spark.range(1).select("id", fn.lit(1).alias("more")), events)
    sinks[0].store(place(2), Attempt("c"), spark.range(1).select("id", fn.struct(fn.lit(1).alias("a")).alias("s")), events)
    sinks[1].store(place(3), Attempt("d"), spark.range(1).select(fn.struct(fn.lit(1.5).alias("b")).alias("s")), events)
    assert len(read(sinks[0], spark)) == 4
    assert spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "legs")).schema.simpleString() == (
        "struct<id:bigint,more:string,s:struct<a:int,b:double>>"
    )


def test_concurrent_additions_of_a_column_with_two_types_conflict(tmp_path: Path, spark: SparkSession) -> None:
    ParquetSink(tmp_path, Origin("log", "s", "first")).store(place(0), Attempt("a"), spark.range(1), 1)

    def add(number: int) -> int | TypeConflict:
        more = fn.lit("x") if number % 2 else fn.lit(1.5)
        try:
            return ParquetSink(tmp_path, Origin("log", f"{number}", "first")).store(
                place(1), Attempt("b"), spark.range(1).select("id", more.alias("more")), 1
            )
        except TypeConflict as error:
            return error

    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(add, range(6)))
    assert sum(each == 1 for each in made) == 3
    assert len(read(ParquetSink(tmp_path, Origin("log", "s", "first")), spark)) == 4


def test_a_table_of_another_program_has_the_types_of_its_files(tmp_path: Path, spark: SparkSession) -> None:
    spark.range(2).select(fn.col("id").cast("int"), fn.lit("x").alias("text")).write.parquet(str(tmp_path / "legs"))
    sink = ParquetSink(tmp_path, Origin("log", "s", "first"))
    with pytest.raises(TypeConflict, match="'id' is int in the table and bigint in the rows"):
        sink.store(place(0), Attempt("a"), spark.range(1), 1)
    sink.store(place(0), Attempt("a"), spark.range(1).select(fn.col("id").cast("smallint")), 1)
    assert len(read(sink, spark)) == 3
    broken = tmp_path / "broken"
    spark.range(2).write.parquet(str(broken))
    spark.range(2).select(fn.lit("x").alias("id")).write.mode("append").parquet(str(broken))
    with pytest.raises(TypeConflict, match="The files of the table 'broken' have different types"):
        sink.store(place(0, table="broken"), Attempt("a"), spark.range(1), 1)


def test_a_moved_table_is_created_again(opened: Open, spark: SparkSession) -> None:
    sink = opened()
    sink.store(place(0), Attempt("a"), spark.range(1), 1)
    move = rename_table if is_configured() else partial(move_table, sink._tables)
    move("legs", "old")
    assert sink.stored(place(0), "a") is None
    sink.store(place(1), Attempt("b"), spark.range(1).select(fn.lit("x").alias("id")), 1)
    assert read(sink, spark) == [{"id": "x"}]
    if isinstance(sink, IcebergSink) and not is_configured():  # its metadata has the paths from before
        assert pq.read_table(sink._tables / "old" / "data").num_rows == 1
    else:
        assert len(read(sink, spark, "old")) == 1


@SIZES
def test_every_reader_reads_all_types_of_spark(opened: Open, spark: SparkSession, events: int) -> None:
    sink = opened()
    values = spark.range(2).select(
        fn.lit(True).alias("b"),
        fn.lit(b"\x00\xff").alias("bin"),
        fn.lit(Decimal("1.50")).alias("dec"),
        fn.current_date().alias("day"),
        fn.current_timestamp().alias("at"),
        fn.expr("cast('2020-01-01 00:00:00' as timestamp_ntz)").alias("ntz"),
        fn.expr("named_struct('a', array(map('k', 1)))").alias("deep"),
        fn.lit(1.5).cast("float").alias("f"),
    )
    for batch in range(2):
        sink.store(place(batch), Attempt("a"), values, events)
    assert len(read(sink, spark)) == 4


def test_a_table_of_another_log_is_refused_before_any_write(opened: Open, spark: SparkSession) -> None:
    opened().store(place(), Attempt("a"), spark.range(3), 3)
    other = opened(log="other")
    ran: list[object] = []
    for use in (lambda: other.stored(place(1), "b"), lambda: other.store(place(1), Attempt("b"), spark.range(9), 9)):
        with pytest.raises(
            RunConflict, match=r"'legs' has rows of the scope 'flights' from the event log log, .* the event log other"
        ) as caught:
            ran.append(use())
    assert f"headrace tables adopt legs --tables {opened()._tables} --scope flights --log other" in (caught.value.hint or "")
    assert len(read(opened(), spark)) == 3
    assert not ran
    assert TableWriters(opened()._tables).adopt("legs", Writer("flights", "other")) == Writer("flights", "log")
    assert other.store(place(1), Attempt("b"), spark.range(2), 2) == 2
    with pytest.raises(RunConflict, match="from the event log other"):
        opened().stored(place(), "a")
    assert len(read(other, spark)) == 5


def test_only_one_of_several_logs_creates_a_table(opened: Open, spark: SparkSession) -> None:
    def store(log: str) -> int | RunConflict:
        try:
            return opened(log=log).store(place(), Attempt("a"), spark.range(2), 2)
        except RunConflict as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(store, ["a", "b", "c", "d"]))
    assert sum(each == 2 for each in made) == 1
    assert len(read(opened(), spark)) == 2


def test_a_table_ahead_of_a_restored_database_is_detected(opened: Open, spark: SparkSession) -> None:
    """Store 13: a database that was restored from a backup."""
    sink = opened()
    origin = Origin("log", "flights", "first")
    project = Project("flights")
    kind: TableFormat = "parquet" if isinstance(sink, ParquetSink) else "delta" if isinstance(sink, DeltaSink) else "iceberg"
    for name in ("legs", "legs-eu"):
        project.pipeline(on="*", table="legs", name=name, format=kind)(print)
    project.pipeline(on="*", name="none")(print)
    sink.store(place(3), Attempt("a"), spark.range(1), 1)
    sink.store(place(9, "legs-eu"), Attempt("a"), spark.range(1), 1)

    def check(batch: int, origin: Origin = origin) -> None:
        TableBatches(sink._tables, origin).check(project.pipelines.values(), {kind: opened()}, batch)

    for batch in (9, 10, 10_000):
        check(batch)
    for batch in (0, 2, 3, 8):
        with pytest.raises(RunConflict, match=rf"'legs' has rows of batch [39] of the scope 'flights', whose last batch .* is {batch}:"):
            check(batch)
    check(0, Origin("log", "flights", "second"))
    sink.store(place(200), Attempt("a"), spark.range(1), 1)
    with pytest.raises(RunConflict, match="of batch 200") as caught:
        check(100)
    assert "headrace scopes reset flights --from SEQ" in (caught.value.hint or "")
    _, found, command = (caught.value.hint or "").partition("then: headrace ")
    assert bool(found) == isinstance(sink, ParquetSink)
    if isinstance(sink, ParquetSink) and not isinstance(sink, CompactedParquetSink):
        sink._path(place(200)).unlink()
        assert CliRunner().invoke(app, command.partition(";")[0]).exit_code == 0
        check(100)


def test_a_failed_run_is_stored_after_later_runs(opened: Open, spark: SparkSession) -> None:
    """The report of its dead letter was lost with its driver."""
    opened().store(place(2), Attempt("b"), spark.range(2), 2)
    assert opened().stored(place(1), "a") is None
    assert opened().store(place(1), Attempt("a"), spark.range(1), 1) == 1
    for batch, digest, rows in ((1, "a", 1), (2, "b", 2)):
        assert opened().stored(place(batch), digest) == StoredRun(1, rows)
        assert opened().store(place(batch), Attempt(digest), spark.range(rows), rows) == rows
    assert len(read(opened(), spark)) == 3


@SIZES
@pytest.mark.slow
def test_a_driver_paused_before_its_commit_cannot_store_an_abandoned_run(opened: Open, spark: SparkSession, events: int) -> None:
    """The other driver finds no rows in the table and reports a dead letter: rows that came after that would double its events."""
    opened().store(place(0), Attempt("a"), spark.range(1), events)

    def paused() -> None:
        other = opened()
        other.shut_out([place(1), place(1, part="1"), place(2, pipeline="other", table="never")])
        assert other.stored(place(1), "b") is None

    with pytest.raises(Exception, match=r"No such file|transaction|concurrent"):
        opened(fence=paused).store(place(1), Attempt("b"), spark.range(10, 13), events)
    third = opened()
    assert third.stored(place(1), "b") is None
    assert [row["id"] for row in read(third, spark)] == [0]
    third.store(place(2), Attempt("c"), spark.range(20, 21), events)
    third.store(place(1), Attempt("b"), spark.range(10, 11), events)
    assert sorted(row["id"] for row in read(third, spark)) == [0, 10, 20]
