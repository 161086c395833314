"""A pipeline's events for one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from headrace.pipeline.payload_columns import shown, structs
from headrace.pipeline.ranges import Ranges, ranges_of
from headrace.pipeline.run_identity import digest_of
from headrace.pipeline.schemas import EVENTS, PIPELINE_COLUMNS
from headrace.project import Pipeline

_USUAL: Final = 1024
"""Bytes of a usual event, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Events (ORDERED_SCHEMA) for one run of a pipeline. `part` tells it from the others of the same pipeline in the batch.

    `letter` is the dead letter that is tried again with it.
    """

    pipeline: Pipeline
    part: str
    table: pa.Table
    letter: str | None = None

    @property
    def seqs(self) -> Ranges:
        """The events as closed ranges of their seqs."""
        return ranges_of(np.sort(self.table.column("seq").to_numpy()))

    @property
    def digest(self) -> str:
        """Return a digest of the events, in their order."""
        return digest_of(self.table)

    @property
    def size(self) -> int:
        """How many events of the usual size these are: that many, and more where they are large."""
        return int(max(self.table.num_rows, self.table.nbytes // _USUAL))

    @property
    def name(self) -> str:
        """What the run is called within its batch."""
        return f"{self.pipeline.name}/{self.part}" if self.part else self.pipeline.name


class Frames:
    """The slices of one batch as DataFrames, in one partition each; pipelines that take the same events share one."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._made: dict[int, tuple[pa.Table, DataFrame]] = {}
        self._parsed: dict[tuple[int, str], tuple[pa.Table, DataFrame | None]] = {}

    def of(self, table: pa.Table) -> DataFrame:
        """Return the table as a DataFrame of EVENTS: its buffers go to the JVM as they are."""
        known = self._made.get(id(table))
        if known is None:
            known = self._made[id(table)] = table, self._frame(table, EVENTS)
        return known[1]

    def parsed(self, table: pa.Table, schema: StructType, *, exact: bool) -> DataFrame | None:
        """Return the table as a DataFrame of PIPELINE_COLUMNS, its payloads parsed here; None where that is better left to Spark.

        `exact`: no payload may have a field that the schema has not, nor a value where its type is unknown.
        """
        key = id(table), f"{exact} {schema.json()}"
        if key not in self._parsed:
            columns = structs(table.column("payload"), schema, exact=exact)
            self._parsed[key] = table, None if columns is None else self._with_payload(table, columns, shown(schema))
        return self._parsed[key][1]

    def _with_payload(self, table: pa.Table, payload: pa.StructArray, schema: StructType) -> DataFrame:
        names = [name for name in PIPELINE_COLUMNS if name != "payload"]
        fields = [*(EVENTS[name] for name in names), StructField("payload", schema)]
        return self._frame(table.select(names).append_column("payload", payload), StructType(fields)).select(*PIPELINE_COLUMNS)

    def _frame(self, table: pa.Table, schema: StructType) -> DataFrame:
        return self.spark.createDataFrame(table, schema).coalesce(1)


def payloads(table: pa.Table) -> Iterator[str]:
    """Yield the payloads."""
    for chunk in table.column("payload").chunks:
        yield from chunk.to_pylist()
