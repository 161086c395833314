"""The schema of each pipeline's payloads: declared, or learned from its events.

A learned field of a pipeline with a table keeps the type of its first value, so that the table's columns keep theirs. A
field that was null at first is text, and takes any value as JSON text. A value that does not fit fails its run. Without
a table, a field widens.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import ArrayType, DataType, NullType, StringType, StructField, StructType

from headrace.errors import TypeConflict
from headrace.pipeline.payload.arrow_parser import nullable
from headrace.pipeline.payload.frames import DataFrames, payloads
from headrace.pipeline.payload.inference import (
    InferenceUndecided,
    Misfit,
    OutOfRange,
    in_order,
    merged,
    misfit,
    types_of,
    with_text,
    without_nulls,
)
from headrace.pipeline.schemas import EVENTS, PIPELINE_COLUMNS
from headrace.pipeline.table_storage.tables import Tables, files_in
from headrace.pipeline_declaration import Pipeline


class PayloadSchemas:
    """Learned schemas, one JSON file for each pipeline in `folder`. They live as long as the tables."""

    def __init__(self, folder: Tables) -> None:
        self._files = files_in(folder)
        self._known: dict[str, StructType] = {}

    def apply(self, pipeline: Pipeline, table: pa.Table, frames: DataFrames) -> DataFrame:
        """Return the events (ORDERED_SCHEMA) as PIPELINE_COLUMNS, their payloads parsed by the declared schema, or by a learned one.

        Raises:
            TypeConflict: A value does not fit the learned type of its field.
        """
        known = self._of(pipeline.name) if pipeline.payload is None else _of_ddl(pipeline.payload)
        parsed = frames.parsed(table, known, exact=pipeline.payload is None)
        if parsed is not None:
            return parsed
        events = frames.of(table)
        return parse(events, self.learn(pipeline, events, table) if pipeline.payload is None else pipeline.payload)

    def learn(self, pipeline: Pipeline, events: DataFrame, table: pa.Table | None = None) -> StructType:
        """Return a schema for all payloads of `events` and of earlier ones, with unknown types as text.

        `table` has the same events, if they are in memory.

        Raises:
            TypeConflict: The pipeline has a table, and a value does not fit the type of its field; or a number is
                beyond the range of a double.
        """
        known = self._of(pipeline.name)
        named, inferred = _types(events, table)
        if pipeline.table is not None:
            inferred = _checked(known, inferred, pipeline.name, events)
        widened = merged(known, inferred)
        if widened != known:
            # Fields that were null in every event so far are known by name only.
            widened = merged(merged(known, _names(named())), inferred)
            widened = widened if pipeline.table is None else nullable(widened)
            self._files.replace(_name(pipeline.name), widened.json().encode())
        self._known[pipeline.name] = widened
        return nullable(widened)

    def _of(self, pipeline: str) -> StructType:
        if pipeline not in self._known:
            data = self._files.read(_name(pipeline))
            self._known[pipeline] = StructType() if data is None else StructType.fromJson(json.loads(data))
        return self._known[pipeline]


def schemas_folder(tables: Tables, scope: str) -> Tables:
    """Return the folder of the learned schemas of a scope. It is beside the tables, whose columns have these types."""
    return tables / ".payloads" / blake2b(scope.encode(), digest_size=16).hexdigest()


def _name(pipeline: str) -> str:
    return f"{blake2b(pipeline.encode(), digest_size=16).hexdigest()}.json"


def parse(events: DataFrame, schema: StructType | str) -> DataFrame:
    """EVENTS -> PIPELINE_COLUMNS: the payload as a struct of this schema, or as JSON text if the schema has no fields."""
    events = events.select(*EVENTS.names)
    if schema:
        events = events.withColumn("payload", functions.from_json("payload", schema))
    return events.select(*PIPELINE_COLUMNS)


@lru_cache
def _of_ddl(text: str) -> StructType:
    """Return a declared schema, without fields if only Spark can parse it or must report its error."""
    try:
        kind = DataType.fromDDL(text) if text else None
    except ParseException:
        kind = None
    return _struct(kind)


def _types(events: DataFrame, table: pa.Table | None) -> tuple[Callable[[], StructType], StructType]:
    """Return a function that returns the payloads' fields, and the fields with known types."""
    if table is not None:
        try:
            types = in_order(types_of(payloads(table)))
        except OutOfRange as error:
            raise _out_of_range(table) from error
        except InferenceUndecided:
            pass
        else:
            known = without_nulls(types)
            return lambda: _struct(types), _struct(known)
    return lambda: _inferred(events, drop_nulls=False), _inferred(events, drop_nulls=True)


def _out_of_range(table: pa.Table) -> TypeConflict:
    """Return an error that names the first event with a number beyond the range of a double."""
    for event, payload in zip(table.column("id").to_pylist(), payloads(table), strict=True):
        try:
            types_of([payload])
        except InferenceUndecided:
            continue
        except OutOfRange as error:
            return TypeConflict(
                f"the payload of the event {event!r} has the number {str(error)[:60]}, which no double holds.",
                hint="Declare the fields of the pipeline with payload='…': a double is then Infinity; then redrive its dead letter.",
            )
    raise AssertionError("one of the payloads has such a number")


def _checked(known: StructType, inferred: StructType, pipeline: str, events: DataFrame) -> StructType:
    """Return the inferred types, with text for fields that are already known as text.

    Raises:
        TypeConflict: A value does not fit.
    """
    odd = misfit(known, inferred)
    if odd is None:
        return _struct(_as_known(known, inferred))
    event, (path, kind, other) = _first_misfit(known, events) or (None, odd)
    raise TypeConflict(
        f"the payload of the event {event!r} does not fit: the field {path!r} was learned as {kind.simpleString()}, "
        f"and a value is {other.simpleString()}.",
        hint=f"Declare the fields of the pipeline {pipeline!r} with payload='…'; then redrive its dead letter.",
    )


def _first_misfit(known: StructType, events: DataFrame) -> tuple[str, Misfit] | None:
    """Return the id and the misfit of the first event whose payload does not fit, or None if only Spark can read that payload."""
    for row in events.select("id", "payload").toLocalIterator():
        try:
            kind = types_of([row.payload])
        except InferenceUndecided:
            continue
        odd = misfit(known, kind)
        if odd is not None:
            return str(row.id), odd
    return None


def _as_known(known: DataType, inferred: DataType) -> DataType:
    """Return the inferred type, with text for parts that are known as text."""
    if isinstance(known, StringType):
        return known
    if isinstance(known, StructType) and isinstance(inferred, StructType):
        kinds = {field.name: field.dataType for field in known}
        return StructType([StructField(field.name, _as_known(kinds.get(field.name, NullType()), field.dataType)) for field in inferred])
    if isinstance(known, ArrayType) and isinstance(inferred, ArrayType):
        return ArrayType(_as_known(known.elementType, inferred.elementType))
    return inferred


def _inferred(events: DataFrame, *, drop_nulls: bool) -> StructType:
    read = events.sparkSession.read.json(events.select("payload"), dropFieldIfAllNull=drop_nulls, columnNameOfCorruptRecord="")
    return _struct(with_text(read.schema))


def _struct(kind: DataType | None) -> StructType:
    return kind if isinstance(kind, StructType) else StructType([])


def _names(struct: StructType) -> StructType:
    """Return the struct's fields without their types."""
    return StructType([StructField(field.name, NullType()) for field in struct])
