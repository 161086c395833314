"""The events of a batch's runs as DataFrames."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from headrace.pipeline.payload.arrow_parser import nullable, structs
from headrace.pipeline.schemas import EVENTS, PIPELINE_COLUMNS


class DataFrames:
    """The tables of one batch as DataFrames with one partition each. Pipelines that take the same events share one."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._lock = threading.Lock()
        self._created: dict[int, tuple[pa.Table, DataFrame]] = {}
        self._parsed: dict[tuple[int, str], tuple[pa.Table, DataFrame | None]] = {}

    def of(self, table: pa.Table) -> DataFrame:
        """Return the table as a DataFrame of EVENTS. Its buffers go to the JVM unchanged."""
        with self._lock:
            known = self._created.get(id(table))
            if known is None:
                known = self._created[id(table)] = table, self._frame(table, EVENTS)
            return known[1]

    def parsed(self, table: pa.Table, schema: StructType, *, exact: bool) -> DataFrame | None:
        """Return the table as a DataFrame of PIPELINE_COLUMNS with its payloads parsed here, or None if Spark must parse them.

        `exact`: no payload may have a field that is not in the schema, or a value for a field of unknown type.
        """
        key = id(table), f"{exact} {schema.json()}"
        with self._lock:
            if key not in self._parsed:
                columns = structs(table.column("payload"), schema, exact=exact)
                self._parsed[key] = table, None if columns is None else self._with_payload(table, columns, nullable(schema))
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
