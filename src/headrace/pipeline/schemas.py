"""The schemas at every seam of the pipeline: what each stage takes and gives."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.wire.log import LOG_SCHEMA

# A block is a run of events as one Arrow IPC stream in one cell: the payload then passes through the ordering as buffers,
# never as Python objects, and the cost of a row between the JVM and Python is paid once for thousands of events.

LOG_BLOCKS: Final = StructType(
    [
        StructField("shard", IntegerType(), False),
        StructField("first", LongType(), False),
        StructField("clock", LongType(), False),
        StructField("block", BinaryType(), True),
    ]
)
"""What the source gives: blocks of LOG_SCHEMA rows in order of `first` (their first seq), and last a tick, without a block.

`clock` is the scope's clock at the end of the batch (µs), the same in every row."""

ORDERED_BLOCKS: Final = StructType(
    [
        StructField("block", BinaryType(), True),
        StructField("index", BinaryType(), True),
        StructField("released", LongType(), False),
        StructField("position", LongType(), False),
        StructField("waiting", LongType(), False),
        StructField("lost", LongType(), False),
        StructField("late", LongType(), False),
        StructField("cycles", LongType(), False),
        StructField("longest", DoubleType(), False),
    ]
)
"""What the ordering gives, one row a batch: the events released (a block of ORDERED_SCHEMA rows, an index of INDEX_SCHEMA rows;
null when there are none), then what the scope holds: totals since it began, and the longest wait of those that wait (seconds)."""

ORDERED_SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("mark", pa.string()),
        pa.field("waited", pa.float64(), nullable=False),
        *[field for field in LOG_SCHEMA if field.name not in {"key", "leader_key", "leader_seq"}],
    ]
)
"""Released events, in order of `position`. `waited` is in seconds; `mark` is null, lost, late or cycle."""

INDEX_SCHEMA: Final = pa.schema([pa.field("seq", pa.int64()), pa.field("triggers", pa.dictionary(pa.int32(), pa.string()))])
"""The same events for the driver to route by: the names of the triggers, joined by TRIGGER_SEPARATOR."""

TRIGGER_SEPARATOR: Final = "\x1f"

EVENTS: Final = StructType(
    [
        StructField("position", LongType(), False),
        StructField("mark", StringType(), True),
        StructField("waited", DoubleType(), False),
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
