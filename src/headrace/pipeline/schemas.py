"""The schemas of events in a pipeline, derived from the columns of an event."""

from __future__ import annotations

from typing import Final

from pyspark.sql.pandas.types import from_arrow_schema

from headrace.wire.event_schema import EVENT_COLUMNS, SCOPE_COLUMNS
from headrace.wire.log import arrow_schema

ORDERED_SCHEMA: Final = arrow_schema(column for column in (*SCOPE_COLUMNS, *EVENT_COLUMNS) if column.in_pipeline)
"""Released events, in order of `position`. `mark` is null, lost, late or cycle."""

EVENTS: Final = from_arrow_schema(ORDERED_SCHEMA)
"""ORDERED_SCHEMA in Spark's types."""

PIPELINE_COLUMNS: Final = (*(name for name in ORDERED_SCHEMA.names if name != "payload"), "payload")
"""The columns of a pipeline's DataFrame. `payload` is a struct, or JSON text if its schema has no fields."""
