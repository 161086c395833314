"""Measure keyed tables: running totals in a table of many keys, through Spark and the sink, beside a bare merge of the same rows.

*Spread* keys are drawn from the whole table, so that a batch changes nearly every file. *Near* keys are neighbours, as times are.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace.pipeline.runs.identity import Attempt, Origin, RunKey
from headrace.pipeline.spark.session import open_session
from headrace.pipeline.tables.delta.sink import DeltaSink

KEYS: Final = 10_000_000
EVENTS: Final = (20_000, 100_000)
"""The events of a batch: those of one second, and the most that a run has."""
BATCHES: Final = 5
FILE_ROWS: Final = 100_000
COLUMNS: Final = pa.schema([("k", pa.int64()), ("spent", pa.int64())])


def measure(keys: int = KEYS) -> dict[str, Any]:
    """Return events per second for spread and for near keys, and for batches of each size."""
    with TemporaryDirectory() as folder, open_session("bench", master="local[2]", work=Path(folder) / "spark", conf={}) as spark:
        answer: dict[str, Any] = {"keys": keys}
        for events in EVENTS:
            for name, width in (("spread", keys), ("near", 4 * events)):
                tables = Path(folder) / f"{name}-{events}"
                _fill(tables / "spent", keys)
                starts = range(keys - width + 1)
                answer[f"{name} keys, {events:,} events"] = _compare(spark, tables, random.Random(1), starts, width, events)
        return answer


def _fill(folder: Path, keys: int) -> None:
    for start in range(0, keys, FILE_ROWS):
        numbers = np.arange(start, min(start + FILE_ROWS, keys))
        write_deltalake(folder, pa.table({"k": numbers, "spent": numbers % 100}, schema=COLUMNS), mode="append")


def _compare(spark: SparkSession, tables: Path, dice: random.Random, starts: range, width: int, count: int) -> dict[str, Any]:
    sink = DeltaSink(tables, Origin("log", "bench", "first"))
    seconds, bare = [], []
    for batch in range(BATCHES):
        first = dice.choice(starts)
        numbers = [first + dice.randrange(width) for _ in range(count)]
        events = spark.createDataFrame(pa.table({"k": numbers})).coalesce(1)
        begun = time.perf_counter()
        keys = events.distinct().toArrow()

        def add(rows: pa.Table, events: DataFrame = events) -> DataFrame:
            both = events.select("k", sf.lit(1).alias("spent")).unionByName(spark.createDataFrame(rows))
            return both.groupBy("k").agg(sf.sum("spent").alias("spent"))

        sink.replace(RunKey("spent", "spent", batch), Attempt("a"), keys, COLUMNS, add)
        seconds.append(time.perf_counter() - begun)
        bare.append(_merge(tables / "spent", keys))
    return {
        "events/s": round(count / median(seconds)),
        "seconds of a batch": [round(each, 2) for each in seconds],
        "bare merge, events/s": round(count / median(bare)),
        "of the bare merge": round(median(bare) / median(seconds), 2),
    }


def _merge(folder: Path, keys: pa.Table) -> float:
    """Return the seconds of a merge that updates the rows of these keys, by deltalake alone."""
    begun = time.perf_counter()
    merger = DeltaTable(folder).merge(keys, "t.k = s.k", source_alias="s", target_alias="t")
    merger.when_matched_update({"spent": "t.spent + 1"}).execute()
    return time.perf_counter() - begun
