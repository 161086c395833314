"""The schema of each pipeline's payloads: declared, or learned from what came and widened as new fields come."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, functions
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from headrace.pipeline.schemas import EVENTS, PIPELINE_COLUMNS


class PayloadSchemas:
    """Learned schemas, one JSON file for each pipeline in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, StructType] = {}

    def learn(self, pipeline: str, events: DataFrame) -> StructType:
        """Return a schema that holds every payload of `events` and all the pipeline had before, with unknown types as text."""
        known = self._known.get(pipeline) or self._read(pipeline)
        found = _inferred(events, drop_nulls=True)
        widened = merged(known, found)
        if widened != known:
            # Fields that were null in every event so far are known by name only.
            widened = merged(merged(known, _names(_inferred(events, drop_nulls=False))), found)
            self._write(pipeline, widened)
        self._known[pipeline] = widened
        return _text_where_unknown(widened)

    def _path(self, pipeline: str) -> Path:
        return self._folder / f"{pipeline}.json"

    def _read(self, pipeline: str) -> StructType:
        path = self._path(pipeline)
        return StructType.fromJson(json.loads(path.read_text())) if path.exists() else StructType()

    def _write(self, pipeline: str, schema: StructType) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._path(pipeline).with_suffix(".new")
        draft.write_text(schema.json())
        draft.replace(self._path(pipeline))


def parse(events: DataFrame, schema: StructType | str) -> DataFrame:
    """EVENTS -> PIPELINE_COLUMNS: the payload as a struct of this schema; left as JSON text where the schema has no fields."""
    events = events.select(*EVENTS.names)
    if schema:
        events = events.withColumn("payload", functions.from_json("payload", schema))
    return events.select(*PIPELINE_COLUMNS)


def widest(one: DataType, other: DataType) -> DataType:
    """Return the narrowest type that holds the values of both: numbers widen, what does not go together becomes text."""
    if one == other or isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    if isinstance(one, StructType) and isinstance(other, StructType):
        return merged(one, other)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(widest(one.elementType, other.elementType))
    numbers = (LongType, DoubleType, DecimalType)
    return DoubleType() if isinstance(one, numbers) and isinstance(other, numbers) else StringType()


def merged(one: StructType, other: StructType) -> StructType:
    """Return a struct with the fields of both, each as wide as both need."""
    fields = {field.name: field.dataType for field in one}
    for field in other:
        fields[field.name] = widest(fields.get(field.name, NullType()), field.dataType)
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def _inferred(events: DataFrame, *, drop_nulls: bool) -> StructType:
    return events.sparkSession.read.json(events.select("payload"), dropFieldIfAllNull=drop_nulls, columnNameOfCorruptRecord="").schema


def _names(struct: StructType) -> StructType:
    """Return the struct's fields without their types."""
    return StructType([StructField(field.name, NullType()) for field in struct])


def _text_where_unknown(struct: StructType) -> StructType:
    return StructType([StructField(field.name, _known(field.dataType)) for field in struct])


def _known(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return _text_where_unknown(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_known(kind.elementType))
    return StringType() if isinstance(kind, NullType) else kind
