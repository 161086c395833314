"""Keyed tables: a run replaces the rows of the keys of its events, once, in Delta and Iceberg tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace import Memory, Project
from headrace.errors import Fenced, PipelineError, TypeConflict
from headrace.pipeline.runs.code_version import code_of
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.table_storage.tables import Tables
from headrace.pipeline.tables.contents import format_of
from headrace.pipeline.tables.delta.sink import DeltaSink
from headrace.pipeline.tables.iceberg.catalog import IcebergTables
from headrace.pipeline.tables.iceberg.sink import IcebergSink
from headrace.pipeline.tables.maintenance import compact, read_history
from headrace.testing import run_project
from support.pipelines.bucket_tables import bucket_tables, delta_table
from support.pipelines.kit import Api, leg
from support.pipelines.run import no_reports, running, tables_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-tables"), pytest.mark.slow]

ORIGIN = Origin("log", "shop", "first")
COLUMNS = pa.schema([("customer", pa.string()), ("spent", pa.int64())])
Rows = list[dict[str, Any]]


def place(batch: int = 0) -> RunKey:
    return RunKey("spent", "spent", batch)


def keys(*customers: str) -> pa.Table:
    return pa.table({"customer": pa.array(customers, pa.string())})


Sink = DeltaSink | IcebergSink
Open = Callable[..., Sink]


@pytest.fixture(params=["delta", "iceberg", pytest.param("bucket", marks=pytest.mark.brokers)])
def place_of_tables(request: pytest.FixtureRequest) -> str:
    """Return the format of the tables, or "bucket" for Delta tables in a bucket."""
    kind: str = request.param
    return kind


@pytest.fixture
def tables(place_of_tables: str, tmp_path: Path) -> Iterator[Tables]:
    with bucket_tables() if place_of_tables == "bucket" else nullcontext(tmp_path) as folder:
        yield folder


@pytest.fixture
def opened(place_of_tables: str, tables: Tables) -> Open:
    kind: Any = IcebergSink if place_of_tables == "iceberg" else DeltaSink

    def make(origin: Origin = ORIGIN, **more: Any) -> Sink:
        sink: Sink = kind(tables, origin, **more)
        return sink

    return make


def read(tables: Tables, table: str = "spent") -> Rows:
    if not isinstance(tables, Path) or format_of(tables / table) == "delta":
        rows: Rows = delta_table(tables / table).to_pyarrow_table().to_pylist()
    else:
        iceberg = IcebergTables(tables).open(table)
        assert iceberg is not None
        rows = iceberg.scan().to_arrow().to_pylist()
    return sorted(rows, key=str)


def returns(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str = "customer string, spent long") -> Callable[..., DataFrame]:
    return lambda _: spark.createDataFrame(list(rows), schema)


def replace(sink: Sink, batch: int, of: pa.Table, compute: Callable[[pa.Table], DataFrame], digest: str = "a") -> int:
    return sink.replace(place(batch), Attempt(digest), of, COLUMNS, compute)


def test_a_run_replaces_the_rows_of_its_keys_and_deletes_those_without_rows(opened: Open, spark: SparkSession, tables: Tables) -> None:
    sink = opened()
    assert replace(sink, 0, keys("ada", "bob", "cy"), returns(spark, [("ada", 1), ("bob", 2), ("cy", 3)])) == 3
    seen: list[Rows] = []

    def compute(rows: pa.Table) -> DataFrame:
        seen.append(sorted(rows.to_pylist(), key=str))
        return spark.createDataFrame([("ada", 10), ("dan", 4)], "customer string, spent long")

    assert replace(sink, 1, keys("ada", "bob", "dan"), compute) == 2
    assert seen == [[{"customer": "ada", "spent": 1}, {"customer": "bob", "spent": 2}]]
    assert read(tables) == [{"customer": name, "spent": spent} for name, spent in (("ada", 10), ("cy", 3), ("dan", 4))]


def test_a_run_that_is_stored_is_not_computed_again(opened: Open, spark: SparkSession, tables: Tables) -> None:
    replace(opened(), 0, keys("ada"), returns(spark, [("ada", 1)]))
    replace(opened(), 1, keys("ada", "bob"), returns(spark, [("ada", 2), ("bob", 1)]))

    def compute(_: pa.Table) -> DataFrame:
        raise AssertionError

    for batch, rows in ((0, 1), (1, 2)):
        assert opened().stored(place(batch), "a") == StoredRun(1, rows)
        assert replace(opened(), batch, keys("ada"), compute) == rows
    assert len(read(tables)) == 2


def test_a_conflicting_commit_is_followed_by_a_computation_from_the_new_rows(opened: Open, spark: SparkSession, tables: Tables) -> None:
    replace(opened(), 0, keys("ada"), returns(spark, [("ada", 1)]))
    other = opened(Origin("log", "other", "first"))
    seen: list[int] = []

    def compute(rows: pa.Table) -> DataFrame:
        (row,) = rows.to_pylist()
        seen.append(row["spent"])
        if len(seen) == 1:
            replace(other, 0, keys("ada"), returns(spark, [("ada", 100)]))
        return spark.createDataFrame([("ada", row["spent"] + 1)], "customer string, spent long")

    replace(opened(), 1, keys("ada"), compute)
    assert seen == [1, 100]
    assert read(tables) == [{"customer": "ada", "spent": 101}]


def test_competing_drivers_store_a_run_once(opened: Open, spark: SparkSession, tables: Tables) -> None:
    def add(rows: pa.Table) -> DataFrame:
        spent = sum(row["spent"] for row in rows.to_pylist())
        return spark.createDataFrame([("ada", spent + 1)], "customer string, spent long")

    for batch in range(3):
        with ThreadPoolExecutor(3) as pool:
            made = [pool.submit(replace, opened(), batch, keys("ada"), add) for _ in range(3)]
            assert [each.result() for each in made] == [1, 1, 1]
    assert read(tables) == [{"customer": "ada", "spent": 3}]


def test_a_fenced_driver_replaces_nothing(opened: Open, spark: SparkSession, tables: Tables) -> None:
    def lost() -> None:
        raise Fenced("The scope is another driver's.")

    replace(opened(), 0, keys("ada"), returns(spark, [("ada", 1)]))
    with pytest.raises(Fenced):
        replace(opened(fence=lost), 1, keys("ada"), returns(spark, []))
    assert opened().stored(place(1), "a") is None
    assert read(tables) == [{"customer": "ada", "spent": 1}]


def test_rows_that_do_not_fit_are_refused_before_anything_is_written(opened: Open, spark: SparkSession, tables: Tables) -> None:
    sink = opened()
    replace(sink, 0, keys("ada"), returns(spark, [("ada", 1)]))
    with pytest.raises(
        PipelineError, match=r"2 rows of the keyed table 'spent' whose key \(customer\) no event of the run has: \('bob',\), \(None,\)"
    ):
        replace(sink, 1, keys("ada"), returns(spark, [("ada", 2), ("bob", 1), (None, 5)]))
    with pytest.raises(TypeConflict, match="the column 'spent' is bigint in the table and string in the rows"):
        replace(sink, 1, keys("ada"), returns(spark, [("ada", "2")], "customer string, spent string"))
    with pytest.raises(TypeConflict, match="the rows have the column 'more', which columns= does not declare"):
        replace(sink, 1, keys("ada"), returns(spark, [("ada", 2, 3)], "customer string, spent long, more int"))
    changed = pa.schema([("customer", pa.string()), ("spent", pa.float64())])
    with pytest.raises(TypeConflict, match="the column 'spent' is bigint in the table, and columns= declares double") as caught:
        sink.replace(place(1), Attempt("a"), keys("ada"), changed, returns(spark, []))
    assert "Correct columns=" in (caught.value.hint or "")
    with pytest.raises(TypeConflict, match=r"the table has the column 'spent' \(bigint\), which columns= does not declare"):
        sink.replace(place(1), Attempt("a"), keys("ada"), COLUMNS.remove(1), returns(spark, []))
    assert read(tables) == [{"customer": "ada", "spent": 1}]


def test_a_declared_column_that_the_table_lacks_is_added(opened: Open, spark: SparkSession, tables: Tables) -> None:
    sink = opened()
    replace(sink, 0, keys("ada", "bob"), returns(spark, [("ada", 1), ("bob", 2)]))
    wider = COLUMNS.append(pa.field("orders", pa.int32()))
    sink.replace(place(1), Attempt("a"), keys("ada"), wider, returns(spark, [("ada", 3, 1)], "customer string, spent int, orders int"))
    assert read(tables) == [{"customer": "ada", "spent": 3, "orders": 1}, {"customer": "bob", "spent": 2, "orders": None}]


def test_a_key_of_several_columns_replaces_the_exact_combinations(opened: Open, spark: SparkSession, tables: Tables) -> None:
    columns = pa.schema([("shop", pa.string()), ('day\'s "no"', pa.int32()), ("headrace is new", pa.int64())])
    schema = 'shop string, `day\'s "no"` int, `headrace is new` long'
    both = pa.table({"shop": ["a", "b"], 'day\'s "no"': pa.array([1, 2], pa.int32())})
    everything = pa.table({"shop": ["a", "a", "b", "b"], 'day\'s "no"': pa.array([1, 2, 1, 2], pa.int32())})
    sink = opened()
    rows = [(shop, day, 0) for shop in "ab" for day in (1, 2)]
    sink.replace(place(0), Attempt("a"), everything, columns, returns(spark, rows, schema))
    seen: list[int] = []

    def compute(rows: pa.Table) -> DataFrame:
        seen.append(rows.num_rows)
        return spark.createDataFrame([("a", 1, 7)], schema)

    sink.replace(place(1), Attempt("a"), both, columns, compute)
    assert seen == [2]
    assert sorted(tuple(row.values()) for row in read(tables)) == [("a", 1, 7), ("a", 2, 0), ("b", 1, 0)]


def test_a_table_with_a_key_of_several_columns_may_have_nested_columns(spark: SparkSession, tmp_path: Path) -> None:
    columns = pa.schema([("shop", pa.string()), ("row", pa.int64()), ("tags", pa.list_(pa.field("element", pa.string())))])
    schema, sink = "shop string, row long, tags array<string>", DeltaSink(tmp_path, ORIGIN)
    keys_of_both = pa.table({"shop": ["a", "b"], "row": pa.array([1, 2], pa.int64())})
    sink.replace(place(0), Attempt("a"), keys_of_both, columns, returns(spark, [("a", 1, ["x"]), ("b", 2, None), ("a", 1, ["y"])], schema))
    seen: list[Any] = []

    def compute(rows: pa.Table) -> DataFrame:
        seen.extend(rows.to_pylist())
        return spark.createDataFrame([("a", 1, ["z"])], schema)

    sink.replace(place(1), Attempt("a"), keys_of_both.slice(0, 1), columns, compute)
    assert sorted(row["tags"] for row in seen) == [["x"], ["y"]]
    assert sorted(map(str, read(tmp_path))) == sorted(
        map(str, [{"shop": "a", "row": 1, "tags": ["z"]}, {"shop": "b", "row": 2, "tags": None}])
    )


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, 0, 0, 0, micros, UTC) for micros in (0, 1, 999, 1000, 999_999)]),
    "date": (pa.date32(), [date(2026, 1, day) for day in (1, 2, 31)]),
    "timestamp_ntz": (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2026, 1, 1, 0, 0, 0, 1)]),
    "boolean": (pa.bool_(), [True, False]),
    "tinyint": (pa.int8(), [-128, 0, 127]),
    "decimal(38,2)": (pa.decimal128(38, 2), [Decimal("0.00"), Decimal("-1.50"), Decimal("9" * 36 + ".99")]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff" * 70]),
    "string": (pa.string(), ["", "ü", "\U0010ffff" * 40, "z" * 200, "z" * 200 + "a"]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_each_type_are_matched_exactly(opened: Open, spark: SparkSession, tables: Tables, kind: str) -> None:
    """Each key is in a file of its own, so that a range of statistics that is too small would hide its rows."""
    arrow, values = KEYS[kind]
    columns, schema = pa.schema([("k", arrow), ("n", pa.int64())]), f"k {kind}, n long"
    sink = opened()

    def add(rows: pa.Table, value: Any) -> DataFrame:
        return spark.createDataFrame([(value, sum(row["n"] for row in rows.to_pylist()) + 1)], schema)

    for batch in range(3 * len(values)):
        value = values[batch % len(values)]
        of = pa.table({"k": pa.array([value], arrow)})
        sink.replace(place(batch), Attempt("a"), of, columns, partial(add, value=value))
    assert {row["k"]: row["n"] for row in read(tables)} == dict.fromkeys(values, 3)


def test_a_run_whose_events_have_no_key_changes_no_row(opened: Open, spark: SparkSession, tables: Tables) -> None:
    sink = opened()
    for batch in range(2):
        assert replace(sink, 2 * batch, keys(), lambda rows: spark.createDataFrame(rows, "customer string, spent long")) == 0
        replace(sink, 2 * batch + 1, keys("ada"), returns(spark, [("ada", batch)]))
    assert read(tables) == [{"customer": "ada", "spent": 1}]


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_runs_gives_the_table_of_a_dictionary(opened: Open, spark: SparkSession, tables: Tables, seed: int) -> None:
    dice, model = random.Random(seed), dict[str, int]()
    sink = opened()
    for batch in range(8):
        names = dice.sample(["ada", "bob", "cy", "O'Neill", 'quote"', "ü", ""], dice.randrange(1, 5))
        before = {name: model[name] for name in names if name in model}
        after = {name: before.get(name, 0) + dice.randrange(100) for name in names if dice.random() < 0.7}

        def compute(rows: pa.Table, expected: dict[str, int] = before, result: dict[str, int] = after) -> DataFrame:
            assert {row["customer"]: row["spent"] for row in rows.to_pylist()} == expected
            return spark.createDataFrame(list(result.items()), "customer string, spent long")

        replace(sink, batch, keys(*names), compute)
        model = {name: spent for name, spent in model.items() if name not in names} | after
        assert {row["customer"]: row["spent"] for row in read(tables)} == model, f"seed {seed}, batch {batch}"


def test_a_table_that_another_program_compacts_is_written_on(opened: Open, spark: SparkSession, tables: Tables) -> None:
    sink = opened()
    for batch in range(3):
        replace(sink, batch, keys(f"c{batch}"), returns(spark, [(f"c{batch}", batch)]))

    def compute(rows: pa.Table) -> DataFrame:
        assert compact(tables, "spent").files_after == 1
        return spark.createDataFrame([("c0", rows.to_pylist()[0]["spent"] + 7)], "customer string, spent long")

    replace(sink, 3, keys("c0"), compute)
    more = pa.table({"customer": ["other"], "spent": [1]})
    if isinstance(sink, DeltaSink):
        write_deltalake(delta_table(tables / "spent"), more, mode="append")
    else:
        assert isinstance(tables, Path)
        other = IcebergTables(tables).open("spent")
        assert other is not None
        other.append(more)
    replace(sink, 4, keys("other"), lambda rows: spark.createDataFrame(rows.to_pandas()))
    assert [row["spent"] for row in read(tables)] == [7, 1, 2, 1]


def running_totals() -> Project:
    project = Project("shop")
    project.watch("orders.all", Memory("feed"), id="$.n")

    @project.pipeline(
        on="orders.*", table="spent", key="customer", columns="customer string, spent double", payload="customer string, price double"
    )
    def spent(orders: DataFrame, rows: DataFrame) -> DataFrame:
        new = orders.where("payload.customer IS NOT NULL").select("payload.customer", sf.col("payload.price").alias("spent"))
        return new.unionByName(rows).groupBy("customer").agg(sf.sum("spent").alias("spent"))

    return project


def test_running_totals_have_one_row_for_each_customer(spark: SparkSession) -> None:
    first = [{"n": n, "customer": "ada" if n % 2 else "bob", "price": 1.0} for n in range(10)]
    result = run_project(running_totals(), first, [{"n": 10, "customer": "ada", "price": 0.5}, {"n": 11, "price": 9.0}], spark=spark)
    assert not result.dead_letters
    assert sorted(result.tables["spent"], key=str) == [{"customer": "ada", "spent": 5.5}, {"customer": "bob", "spent": 5.0}]


def test_a_key_that_the_events_do_not_have_fails_with_a_hint(spark: SparkSession) -> None:
    project = Project("shop")
    project.watch("orders.all", Memory("feed"), id="$.n")

    @project.pipeline(on="orders.*", table="spent", key="buyer", columns="buyer string", payload="customer string", attempts=1)
    def spent(orders: DataFrame, rows: DataFrame) -> DataFrame:
        raise AssertionError

    (letter,) = run_project(project, [{"n": 1, "customer": "ada"}], spark=spark).dead_letters
    assert "the key of the table 'spent' is not in its events" in letter.reason
    assert "buyer" in letter.reason


def test_the_key_may_be_an_expression(spark: SparkSession) -> None:
    project = Project("shop")
    project.watch("orders.all", Memory("feed"), id="$.n")

    @project.pipeline(
        on="orders.*",
        table="last",
        key={"customer": "lower(payload.order.customer)"},
        columns="customer string, id string",
        payload="order struct<customer: string>",
    )
    def last(orders: DataFrame, rows: DataFrame) -> DataFrame:
        return orders.groupBy(sf.lower("payload.order.customer").alias("customer")).agg(sf.max_by("id", "position").alias("id"))

    feed = [{"n": 1, "order": {"customer": "Ada"}}, {"n": 2, "order": {"customer": "ADA"}}]
    assert run_project(project, feed, spark=spark).tables["last"] == [{"customer": "ada", "id": "2"}]


def test_a_run_whose_report_was_lost_is_not_added_again(api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home, max_rows=50)
    project = Project("flights")

    @project.pipeline(on="legs.*", table="counts", key="k", columns="k long, n long", payload="n long, k long")
    def counts(legs: DataFrame, rows: DataFrame) -> DataFrame:
        return legs.select("payload.k", sf.lit(1).alias("n")).unionByName(rows).groupBy("k").agg(sf.sum("n").cast("long").alias("n"))

    feed = [leg(f"{n}", trigger, n=n, k=n % 7) for n in range(120)]
    with no_reports(monkeypatch), running(project, options, spark) as run:
        api.feed(feed)
        assert "cannot be reported" in str(run.until_failed())
    assert read(tables_of(options), "counts")
    with running(project, options, spark) as run:
        run.until_handled(api, 120)
    assert {row["k"]: row["n"] for row in read(tables_of(options), "counts")} == {k: len(range(k, 120, 7)) for k in range(7)}
    changes = read_history(tables_of(options), "counts", 9, lambda *_: None).changes
    assert {change.code for change in changes if change.run_id} == {code_of(counts)}
