"""The schema of each pipeline's payloads: declared, or learned from what came and widened as new fields come."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import DataType, NullType, StructField, StructType

from headrace.pipeline.payload_columns import shown
from headrace.pipeline.payload_types import Unsure, in_order, merged, types_of, without_nulls
from headrace.pipeline.schemas import EVENTS, PIPELINE_COLUMNS
from headrace.pipeline.slices import Frames, Slice, payloads

FEW: Final = 5_000
"""Up to so many payloads are looked at here: a job of Spark's, which any number needs, takes longer."""


class PayloadSchemas:
    """Learned schemas, one JSON file for each pipeline in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, StructType] = {}

    def apply(self, part: Slice, frames: Frames) -> DataFrame:
        """Return the slice as PIPELINE_COLUMNS, its payloads parsed by the schema that is declared, or by one that is learned."""
        name, declared = part.pipeline.name, part.pipeline.payload
        known = self._known.get(name) or self._read(name) if declared is None else _of_ddl(declared)
        parsed = frames.parsed(part.table, known, exact=declared is None)
        if parsed is not None:
            return parsed
        events = frames.of(part.table)
        return parse(events, self.learn(name, events, part.table) if declared is None else declared)

    def learn(self, pipeline: str, events: DataFrame, table: pa.Table | None = None) -> StructType:
        """Return a schema that holds every payload of `events` and all the pipeline had before, with unknown types as text.

        `table` has the same events, where they are here.
        """
        known = self._known.get(pipeline) or self._read(pipeline)
        named, found = _types(events, table)
        widened = merged(known, found)
        if widened != known:
            # Fields that were null in every event so far are known by name only.
            widened = merged(merged(known, _names(named())), found)
            self._write(pipeline, widened)
        self._known[pipeline] = widened
        return shown(widened)

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


@lru_cache
def _of_ddl(text: str) -> StructType:
    """Return a declared schema; without fields where Spark alone understands it, or is to say what is wrong with it."""
    try:
        kind = DataType.fromDDL(text) if text else None
    except ParseException:
        kind = None
    return _struct(kind)


def _types(events: DataFrame, table: pa.Table | None) -> tuple[Callable[[], StructType], StructType]:
    """Return the payloads' fields, and their types where one is known; the former only where it is asked for."""
    if table is not None and table.num_rows <= FEW:
        try:
            types = in_order(types_of(payloads(table)))
        except Unsure:
            pass
        else:
            known = without_nulls(types)
            return lambda: _struct(types), _struct(known)
    return lambda: _inferred(events, drop_nulls=False), _inferred(events, drop_nulls=True)


def _inferred(events: DataFrame, *, drop_nulls: bool) -> StructType:
    return events.sparkSession.read.json(events.select("payload"), dropFieldIfAllNull=drop_nulls, columnNameOfCorruptRecord="").schema


def _struct(kind: DataType | None) -> StructType:
    return kind if isinstance(kind, StructType) else StructType([])


def _names(struct: StructType) -> StructType:
    """Return the struct's fields without their types."""
    return StructType([StructField(field.name, NullType()) for field in struct])
