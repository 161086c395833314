"""Tables after a power cut: reported rows of a run are stored, whichever sync the previous driver reached."""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.runs.identity import Attempt, Origin, RunKey
from headrace.pipeline.tables.contents import format_of
from headrace.pipeline.tables.delta.compaction import DeltaCompaction
from headrace.pipeline.tables.delta.sink import DeltaSink
from headrace.pipeline.tables.iceberg.maintenance import opened
from headrace.pipeline.tables.iceberg.sink import IcebergSink
from headrace.pipeline.tables.parquet.sink import ParquetSink
from support.pipelines.power_cut import UnsyncedWrites

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-tables")]

Sink = type[ParquetSink] | type[DeltaSink] | type[IcebergSink]
ORIGIN = Origin("log", "flights", "first")


class Died(BaseException):
    """The driver was killed."""


def rows_of(folder: Path) -> list[dict[str, Any]]:
    if format_of(folder) == "iceberg":
        table = opened(folder).scan().to_arrow()
    else:
        table = DeltaTable(folder).to_pyarrow_table() if (folder / "_delta_log").exists() else pq.read_table(folder)
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: int(row["n"]))


def report(sink: ParquetSink | DeltaSink | IcebergSink, batch: int, rows: DataFrame) -> None:
    """Do what a driver does before it reports a run as stored."""
    place = RunKey("legs", "legs", batch)
    if sink.stored(place, "digest") is None:
        sink.store(place, Attempt("digest", 1, "run"), rows, 1)


def die_at_sync(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let this process die at its `number`th sync from now on."""
    numbers, fsync = count(), os.fsync

    def dying(descriptor: int) -> None:
        if next(numbers) >= number:
            raise Died
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", dying)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ParquetSink, DeltaSink, IcebergSink], ids=["parquet", "delta", "iceberg"])
def test_a_reported_run_survives_a_power_cut(kind: Sink, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [spark.sql("SELECT 1 AS n, 'a' AS text"), spark.sql("SELECT 2 AS n, 'b' AS text")]
    wider = rows[1] if kind is not ParquetSink else spark.sql("SELECT 2 AS n, 'b' AS text, true AS more")
    for number in count():
        tables = tmp_path / "tables"
        tables.mkdir()
        disk = UnsyncedWrites(tables)
        with disk.noted(monkeypatch):
            died = False
            with monkeypatch.context() as dying:
                die_at_sync(dying, number)
                try:
                    for batch, some in enumerate([rows[0], wider]):
                        report(kind(tables, ORIGIN), batch, some)
                except Died:
                    died = True
            second = kind(tables, ORIGIN)
            report(second, 0, rows[0])
            report(second, 1, wider)
        lost = disk.cut()
        stored = [(row["n"], row["text"]) for row in rows_of(tables / "legs")]
        assert stored == [(1, "a"), (2, "b")], f"died at sync {number}; the power cut took {lost}"
        shutil.rmtree(tables)
        if not died:
            break
    assert number > 8


@pytest.mark.slow
def test_a_run_that_is_reported_after_a_compaction_survives_a_power_cut(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compaction died before it synced its file, which replaces those of runs that were reported."""
    tables = tmp_path / "tables"
    tables.mkdir()
    rows = [spark.sql(f"SELECT {batch} AS n") for batch in range(4)]
    disk = UnsyncedWrites(tables)
    with disk.noted(monkeypatch):
        for batch in range(3):
            report(DeltaSink(tables, ORIGIN), batch, rows[batch])
        with monkeypatch.context() as dying:
            die_at_sync(dying, 0)
            with pytest.raises(Died):
                DeltaCompaction(tables, "legs").run()
        report(DeltaSink(tables, ORIGIN), 3, rows[3])
    disk.cut()
    assert len(DeltaTable(tables / "legs").file_uris()) == 2
    assert [row["n"] for row in rows_of(tables / "legs")] == [0, 1, 2, 3]
