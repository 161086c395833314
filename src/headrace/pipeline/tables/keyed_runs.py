"""Run a pipeline on a keyed table: find the keys of its events, and store the rows that it computes for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from headrace.errors import PipelineError
from headrace.pipeline.runs.identity import Attempt, RunKey
from headrace.pipeline.schemas import PIPELINE_COLUMNS
from headrace.pipeline.spark.errors import summary
from headrace.pipeline.tables.column_types import canonical
from headrace.pipeline.tables.sink import TableSink
from headrace.pipeline_declaration import KeyedTable, Pipeline


@runtime_checkable
class KeyedSink(Protocol):
    """A sink of a format whose rows can be replaced."""

    def replace(self, key: RunKey, attempt: Attempt, keys: pa.Table, columns: pa.Schema, compute: Callable[[pa.Table], DataFrame]) -> int:
        """Replace the rows of these keys by the result of `compute` for their present rows; return their number."""


def store_keyed(sink: TableSink, pipeline: Pipeline, keyed: KeyedTable, key: RunKey, attempt: Attempt, events: DataFrame) -> int:
    """Call the pipeline with its events and the table's rows of their keys, and store the rows that it returns; return their number.

    Raises:
        PipelineError: The key is not in the events, the result is not a DataFrame, or the run was planned before the table had a key.
        TypeConflict, RunConflict: As for `KeyedSink.replace`.
    """
    if not isinstance(sink, KeyedSink):
        raise PipelineError(
            f"its table {key.table!r} has a key, and this run was planned when it was a Parquet table.",
            hint="Give the pipeline the format and the key of before, until its open runs have ended. Or discard the dead letter.",
        )
    schema = _schema(keyed)

    def compute(rows: pa.Table) -> DataFrame:
        result = pipeline.function(events, events.sparkSession.createDataFrame(rows, schema))
        return checked_result(result, key.table)

    return sink.replace(key, attempt, _keys(events, keyed, schema, key.table), _columns(schema), compute)


def checked_result(result: object, table: str) -> DataFrame:
    """Return what a pipeline with a table returned. Raises `PipelineError` if it is not a DataFrame."""
    if not isinstance(result, DataFrame):
        raise PipelineError(f"it fills the table {table!r} but returns {type(result).__name__}.", hint="Return a DataFrame from it.")
    return result


def _schema(keyed: KeyedTable) -> StructType:
    schema: Any = DataType.fromDDL(keyed.columns)  # a list of columns, as the project's load has checked
    return StructType(schema.fields)


def _columns(schema: StructType) -> pa.Schema:
    return canonical(to_arrow_schema(schema, timezone="UTC"))


def _keys(events: DataFrame, keyed: KeyedTable, schema: StructType, table: str) -> pa.Table:
    """Return the keys of the events, each once, without those with a null. The types are those of the table."""
    names = [name for name, _ in keyed.key]
    try:
        values = [sf.expr(_expression(*pair)).cast(schema[pair[0]].dataType).alias(pair[0]) for pair in keyed.key]
        keys = events.select(*values).dropna(subset=names).distinct()
    except AnalysisException as error:
        raise PipelineError(
            f"the key of the table {table!r} is not in its events: {summary(error)}",
            hint="Name the value of each column of the key: key={'customer': 'payload.order.customer'}.",
        ) from error
    table_keys = keys.toArrow()
    return table_keys.cast(canonical(table_keys.schema))


def _expression(name: str, expression: str | None) -> str:
    """Return the SQL expression of a key's column in an event."""
    if expression is not None:
        return expression
    quoted = "`" + name.replace("`", "``") + "`"
    return quoted if name in PIPELINE_COLUMNS else f"payload.{quoted}"
