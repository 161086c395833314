"""The schemas at every seam of the pipeline: what each stage takes and gives."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from headrace.wire.log import LOG_SCHEMA

ORDERED_SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("mark", pa.string()),
        *[field for field in LOG_SCHEMA if field.name not in {"key", "leader_key", "leader_seq"}],
    ]
)
"""Released events, in order of `position`. `mark` is null, lost, late or cycle."""

EVENTS: Final = StructType(
    [
        StructField("position", LongType(), False),
        StructField("mark", StringType(), True),
        StructField("seq", LongType(), False),
        StructField("source", StringType(), False),
        StructField("id", StringType(), False),
        StructField("type", StringType(), False),
        StructField("subject", StringType(), True),
        StructField("occurred", TimestampType(), False),
        StructField("received", TimestampType(), False),
        StructField("follows", StringType(), True),
        StructField("trace", StringType(), True),
        StructField("payload", StringType(), False),
        StructField("triggers", ArrayType(StringType(), True), False),
    ]
)
"""ORDERED_SCHEMA in Spark's words."""

PIPELINE_COLUMNS: Final = (
    "position",
    "mark",
    "seq",
    "source",
    "id",
    "type",
    "subject",
    "occurred",
    "received",
    "follows",
    "trace",
    "triggers",
    "payload",
)
"""What a pipeline gets; `payload` is a struct, or JSON text where it has no fields to make one of."""
