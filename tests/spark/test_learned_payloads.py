"""Learned payloads with a table: each field keeps its type, so the table stays readable."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import select

from headrace.errors import TypeConflict
from headrace.pipeline.payload.frames import DataFrames
from headrace.pipeline.payload.schemas import PayloadSchemas, schemas_folder
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey
from headrace.pipeline.schemas import ORDERED_SCHEMA
from headrace.pipeline.table_storage.tables import Tables
from headrace.pipeline.tables.parquet.sink import ParquetSink
from headrace.pipeline_declaration import Pipeline
from headrace.project import Project
from headrace.store.db.meta import log_id
from headrace.store.tables.pipelines import scopes
from support.pipelines.kit import Api, leg, until
from support.pipelines.plans import stored_cursor
from support.pipelines.run import files, no_reports, running, table, tables_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pipeline(name: str = "legs", into: str | None = "legs") -> Pipeline:
    made = Project("flights")
    made.pipeline(on="*", table=into, name=name)(lambda events: events)
    return made.pipelines[name]


def events_of(*payloads: str) -> pa.Table:
    rows = [
        {"position": n, "seq": n, "source": "s", "id": f"e{n}", "type": "t", "occurred": NOW, "received": NOW}
        | {"payload": payload, "triggers": ["legs"]}
        for n, payload in enumerate(payloads, 1)
    ]
    return pa.Table.from_pylist(rows, schema=ORDERED_SCHEMA)


def learned(folder: Tables, spark: SparkSession, *payloads: str, of: Pipeline | None = None) -> tuple[str, list[dict[str, Any]]]:
    """Return the type of the payloads and the payloads, as the pipeline gets them, learned by a process of its own."""
    frame: DataFrame = PayloadSchemas(folder).apply(of or pipeline(), events_of(*payloads), DataFrames(spark))
    return frame.select("payload.*").schema.simpleString(), [row.payload.asDict(recursive=True) for row in frame.collect()]


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ('{"n": 1}', '{"n": 1.5}', "the field 'n' was learned as bigint, and a value is double"),
        ('{"n": 1}', '{"n": "x"}', "the field 'n' was learned as bigint, and a value is string"),
        ('{"n": 1}', f'{{"n": {10**29}}}', "the field 'n' was learned as bigint, and a value is string"),
        ('{"n": 0.5}', f'{{"n": {10**29}}}', "the field 'n' was learned as double, and a value is string"),
        ('{"n": true}', '{"n": 1}', "the field 'n' was learned as boolean, and a value is bigint"),
        ('{"n": {"x": [1]}}', '{"n": {"x": [1.5]}}', "the field 'n.x[]' was learned as bigint, and a value is double"),
        ('{"n": {"x": 1}}', '{"n": 1}', "the field 'n' was learned as struct<x:bigint>, and a value is bigint"),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_id_of_its_event(
    tmp_path: Path, spark: SparkSession, first: str, then: str, said: str
) -> None:
    """Store A17 and B25."""
    kept = learned(tmp_path, spark, first)
    with pytest.raises(TypeConflict, match="the payload of the event 'e2' does not fit: ") as caught:
        learned(tmp_path, spark, first, then, first)
    assert said in str(caught.value)
    assert "payload=" in (caught.value.hint or "")
    assert learned(tmp_path, spark, first) == kept


@pytest.mark.parametrize("into", ["legs", None])
def test_a_number_beyond_the_range_of_double_is_refused_with_the_id_of_its_event(
    tmp_path: Path, spark: SparkSession, into: str | None
) -> None:
    """Store B25."""
    of = pipeline("legs", into)
    with pytest.raises(TypeConflict, match="the payload of the event 'e2' has the number 1e400, which no double holds"):
        learned(tmp_path, spark, '{"n": 1}', '{"n": 1e400}', of=of)
    assert learned(tmp_path, spark, '{"n": 1}', of=of)[0] == "struct<n:bigint>"


def test_compatible_values_are_stored_exactly(tmp_path: Path, spark: SparkSession) -> None:
    first = f'{{"big": {10**29}, "far": "x", "gate": null, "tags": [], "d": 1.5, "n": 1}}'
    then = f'{{"big": 7, "far": 1.5, "gate": {{"name": "A1"}}, "tags": [1, {10**29}], "d": 2, "n": {2**63 - 1}}}'
    kind, rows = learned(tmp_path, spark, first)
    assert kind == "struct<big:string,d:double,far:string,gate:string,n:bigint,tags:string>"
    assert (rows[0]["big"], rows[0]["gate"]) == (str(10**29), None)
    again, rows = learned(tmp_path, spark, then)
    assert again == kind
    (row,) = rows
    assert json.loads(row.pop("gate")) == {"name": "A1"}
    assert json.loads(row.pop("tags")) == [1, 10**29]
    assert row == {"big": "7", "d": 2.0, "far": "1.5", "n": 2**63 - 1}


def test_a_field_widens_in_a_pipeline_without_a_table(tmp_path: Path, spark: SparkSession) -> None:
    look = pipeline("look", None)
    assert learned(tmp_path, spark, '{"n": 1}', of=look)[0] == "struct<n:bigint>"
    assert learned(tmp_path, spark, '{"n": 1.5}', of=look)[0] == "struct<n:double>"
    kind, rows = learned(tmp_path, spark, f'{{"n": {10**29}}}', of=look)
    assert (kind, rows) == ("struct<n:string>", [{"n": str(10**29)}])


def test_pipelines_with_unusual_names_have_separate_learned_schemas(tmp_path: Path, spark: SparkSession) -> None:
    for number, name in enumerate(["é" * 200, "e" * 200, "."]):
        value = {0: "1", 1: '"x"', 2: "true"}[number]
        learned(schemas_folder(tmp_path, "a/b *" * 90), spark, f'{{"n": {value}}}', of=pipeline(name))
    assert learned(schemas_folder(tmp_path, "a/b *" * 90), spark, '{"n": null}', of=pipeline("."))[0] == "struct<n:boolean>"


@pytest.mark.slow
def test_an_incompatible_event_becomes_a_dead_letter_and_the_table_stays_readable(api: Api, home: Path, spark: SparkSession) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    project = Project("flights")

    @project.pipeline(on="legs.*", table="legs")
    def legs(events: DataFrame) -> DataFrame:
        return events.select("id", "payload.n")

    with running(project, options, spark) as run:
        for number, value in enumerate((1, 1.5, 2), 1):
            api.feed([leg(f"e{number}", trigger, n=value)])
            run.until_handled(api, number)
    (letter,) = api.store.pipeline_dead_letters.page(limit=9).dead_letters
    assert (letter.seqs, letter.attempts) == ([(2, 2)], 1)
    for said in ("the payload of the event 'e2' does not fit: the field 'n' was learned as bigint, and a value is double.", "payload="):
        assert said in letter.error
    assert spark.read.parquet(str(tables_of(options) / "legs")).count() == 2
    assert sorted(row["n"] for row in table(options, "legs")) == [1, 2]


@pytest.mark.slow
def test_rows_of_other_events_for_a_batch_end_the_driver(
    api: Api, home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    options = api.options(home)
    project = Project("flights")

    @project.pipeline(on="legs.*", table="legs", payload="n long", name="legs-eu")
    def eu(events: DataFrame) -> DataFrame:
        return events.select("id")

    @project.pipeline(on="legs.*", table="legs", payload="n long")
    def legs(events: DataFrame) -> DataFrame:
        return events.select("id")

    with no_reports(monkeypatch), running(project, options, spark) as run:
        api.feed([leg("e1", trigger, n=1)])
        until(lambda: len(files(options, "legs")) == 2, "both pipelines have written", lambda: True)  # store A1: each has its file
        run.until_failed()
    assert [row["id"] for row in table(options, "legs")] == ["e1", "e1"]
    batch = stored_cursor(api.store, options.scope).batch
    with api.store.reading() as connection:
        incarnation = connection.execute(select(scopes.c.incarnation)).scalar_one()
    sink = ParquetSink(tables_of(options), Origin(log_id(api.store.instance), options.scope, incarnation))
    sink._path(RunKey("legs", "legs", batch)).unlink()
    sink.store(RunKey("legs", "legs", batch), Attempt("other"), spark.createDataFrame([("e0",)], "id string"), 1)
    with running(project, options, spark) as run:
        failure = run.until_failed()
    assert f"The table 'legs' has rows of other events for batch {batch} of the pipeline 'legs'" in str(failure)
    assert "headrace scopes reset" in (failure.hint or "")
    assert not api.store.pipeline_dead_letters.page(limit=9).dead_letters
