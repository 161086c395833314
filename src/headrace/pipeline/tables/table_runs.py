"""Call a pipeline, and store the rows that it returns. A pipeline with a keyed table also receives the rows of its events' keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

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

Compute = Callable[[pa.Table], DataFrame]
"""Computes the new rows of a run's keys from the table's present rows of these keys."""


@runtime_checkable
class KeyedSink(Protocol):
    """A sink of a format whose rows can be replaced."""

    def replace(self, key: RunKey, attempt: Attempt, keys: pa.Table, columns: pa.Schema, compute: Compute) -> int:
        """Replace the rows of these keys by the result of `compute` for their present rows; return their number."""


class TableRun(NamedTuple):
    """A run whose pipeline has a table: the sink, the run's identity, and the size of its events in usual events."""

    sink: TableSink
    key: RunKey
    attempt: Attempt
    size: int


def call_pipeline(pipeline: Pipeline, events: DataFrame, run: TableRun | None) -> int | None:
    """Call a pipeline with its events, and store the rows that it returns. Return their number, or None without a table.

    Raises:
        PipelineError: The result does not fit the declaration, the key is not in the events, or the run was planned before the table
            had a key.
        TypeConflict, RunConflict: As for `TableSink.store`.
    """
    if run is None:
        if isinstance(pipeline.function(events), DataFrame):
            raise PipelineError("it returns rows but has no table.", hint="Give it one: @project.pipeline(..., table='name').")
        return None
    if pipeline.keyed is None:
        return run.sink.store(run.key, run.attempt, _checked(pipeline.function(events), run.key.table), run.size)
    return _replace(pipeline, pipeline.keyed, events, run)


def _replace(pipeline: Pipeline, keyed: KeyedTable, events: DataFrame, run: TableRun) -> int:
    """Call a pipeline with its events and the table's rows of their keys, and replace those rows."""
    table = run.key.table
    if not isinstance(run.sink, KeyedSink):
        raise PipelineError(
            f"its table {table!r} has a key, and this run was planned when it was a Parquet table.",
            hint="Restore the earlier declaration of the pipeline until its open runs have ended. Or discard the dead letter.",
        )
    schema = _schema(keyed)

    def compute(rows: pa.Table) -> DataFrame:
        return _checked(pipeline.function(events, events.sparkSession.createDataFrame(rows, schema)), table)

    return run.sink.replace(run.key, run.attempt, _keys(events, keyed, schema, table), _columns(schema), compute)


def _checked(result: object, table: str) -> DataFrame:
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
