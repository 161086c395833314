"""A pipeline's events for one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.ranges import Ranges, ranges_of
from headrace.pipeline.schemas import EVENTS
from headrace.project import Pipeline


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
    def name(self) -> str:
        """What the run is called within its batch."""
        return f"{self.pipeline.name}/{self.part}" if self.part else self.pipeline.name


class Frames:
    """The slices of one batch as DataFrames of EVENTS, in one partition each; pipelines that take the same events share one."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._made: dict[int, tuple[pa.Table, DataFrame]] = {}

    def of(self, table: pa.Table) -> DataFrame:
        """Return the table as a DataFrame: its buffers go to the JVM as they are."""
        known = self._made.get(id(table))
        if known is None:
            known = self._made[id(table)] = table, self._spark.createDataFrame(table, EVENTS).coalesce(1)
        return known[1]


def payloads(table: pa.Table) -> Iterator[str]:
    """Yield the payloads."""
    for chunk in table.column("payload").chunks:
        yield from chunk.to_pylist()
