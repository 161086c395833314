"""`run_project` on pipelines, in a real Spark session."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace import Debounce, Memory, Project, Window
from headrace.errors import UsageError
from headrace.pipeline_declaration import TableFormat
from headrace.testing import run_project

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FEED = Memory("feed")


def orders() -> Project:
    project = Project("shop")
    project.watch("orders.all", FEED, id="$.n", follows="$.after")
    return project


def test_pipelines_fill_tables_in_causal_order(spark: SparkSession) -> None:
    project = orders()

    @project.pipeline(on="orders.*", table="spent", payload="n long, price double")
    def spent(events: DataFrame) -> DataFrame:
        return events.select("position", "mark", "payload.n", (sf.col("payload.price") * 2).alias("twice"))

    @project.pipeline(on="orders.*", table="learned")
    def learned(events: DataFrame) -> DataFrame:
        return events.select("id", "payload.price")

    result = run_project(project, [{"n": 2, "after": "1", "price": 1.5}, {"n": 1, "price": 2.0}, {"n": 4, "after": "3"}], spark=spark)
    assert sorted(result.tables["spent"], key=lambda row: row["position"]) == [
        {"position": 1, "mark": None, "n": 1, "twice": 4.0},
        {"position": 2, "mark": None, "n": 2, "twice": 3.0},
        {"position": 3, "mark": "lost", "n": 4, "twice": None},
    ]
    assert sorted((row["id"], row["price"]) for row in result.tables["learned"] if row["price"]) == [("1", 2.0), ("2", 1.5)]
    assert [event["id"] for event in result.events] == ["1", "2", "4"]
    assert (result.dead_letters, result.held) == ([], 0)
    assert result.dataframe("spent").where("n = 2").collect()[0]["twice"] == 3.0
    with pytest.raises(UsageError, match="wrote the table 'other'"):
        result.dataframe("other")


def test_events_of_a_failed_run_become_dead_letters(spark: SparkSession) -> None:
    project = orders()

    @project.pipeline(on="orders.*", table="spent", payload="n long", attempts=2)
    def spent(events: DataFrame) -> DataFrame:
        if events.where("payload.n = 3").count():
            raise RuntimeError("three")
        return events.select("payload.n")

    result = run_project(project, [{"n": n} for n in range(1, 6)], spark=spark)
    assert sorted(row["n"] for row in result.tables["spent"]) == [1, 2, 4, 5]
    (letter,) = result.dead_letters
    assert (letter.kind, letter.pipeline, letter.events) == ("pipeline", "spent", ("3",))
    assert "RuntimeError: three" in letter.reason


def test_batch_policies_set_the_calls_of_a_pipeline(spark: SparkSession) -> None:
    calls: dict[str, list[int]] = {"each": [], "debounce": [], "window": []}
    project = orders()

    def declare(name: str, batch: Any) -> None:
        @project.pipeline(on="orders.*", name=name, batch=batch)
        def call(events: DataFrame) -> None:
            calls[name].append(events.count())

    declare("each", "each")
    declare("debounce", Debounce(60.0))
    declare("window", Window(2))
    result = run_project(project, [{"n": n} for n in range(3)], spark=spark)
    assert calls == {"each": [1, 1, 1], "debounce": [3], "window": [2]}
    assert result.held == 1
    assert result.tables == {}


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_delta_or_iceberg_table_is_read(spark: SparkSession, format: TableFormat) -> None:
    project = orders()

    @project.pipeline(on="orders.*", table="spent", payload="n long", format=format)
    def spent(events: DataFrame) -> DataFrame:
        return events.select("payload.n")

    assert run_project(project, [{"n": 1}], spark=spark).tables == {"spent": [{"n": 1}]}
