"""The event log as a history: Spark tasks read it in ranges through the API, one per core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.client.pipeline import PipelineClient
from headrace.errors import PipelineError
from headrace.replay.inputs.files import slim_columns
from headrace.replay.inputs.history import History
from headrace.replay.options import Fields, HistoryColumns, LogAccess
from headrace.replay.schemas import ORDERING_KEY
from headrace.wire.log import LOG_SCHEMA

EVENTS_PER_TASK: Final = 250_000
"""Events that one task reads."""
_EVENT_BYTES: Final = 500
_SPARK_SCHEMA: Final = from_arrow_schema(LOG_SCHEMA)
_KEYS: Final = ("key", "leader_key", "leader_seq")


def read_log(spark: SparkSession, log: LogAccess, fields: Fields) -> tuple[History, HistoryColumns]:
    """Return the log up to its head as a history. A pruned leader counts as known, not as lost."""
    count = max(1, -(-(log.head - log.first + 1) // EVENTS_PER_TASK))
    events = spark.range(0, count, 1, count).mapInArrow(partial(_read, log), _SPARK_SCHEMA)
    known = (sf.col("leader_seq") < 0) | (sf.col("leader_seq") >= log.first)
    slim = slim_columns(sf.col("key"), sf.when(known, sf.col("leader_key")), sf.unix_micros("occurred"))
    columns = [sf.col(name) for name in LOG_SCHEMA.names if name not in _KEYS]
    extra = [sf.col(fields.key).alias(ORDERING_KEY)] if fields.key is not None else []
    size = _EVENT_BYTES * (log.head - log.first + 1)
    return History(events.select(*columns, *slim, *extra), size, "id", keyed=bool(extra)), HistoryColumns("id", "occurred", "payload")


def _read(log: LogAccess, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with PipelineClient(log.api_url, token_file=log.token_file) as client:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                after = log.first - 1 + number * EVENTS_PER_TASK
                to = min(after + EVENTS_PER_TASK, log.head)
                missing = to - after
                for page in client.pages(after=after, to=to):
                    missing -= page.num_rows
                    yield from page.select(LOG_SCHEMA.names).to_batches()
                if missing:  # the log had all of them when the replay began
                    raise PipelineError(
                        f"Retention deleted {missing:,} of the events {after + 1:,} to {to:,} before they were read.",
                        hint="Replay again, or keep events for longer: HEADRACE_RETENTION_DAYS.",
                    )
