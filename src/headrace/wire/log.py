"""The Arrow schema of the event log, as GET /execution/events returns it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from headrace.wire.event_schema import EVENT_COLUMNS, EventColumn

NO_LEADER_SEQ: Final = -1
"""`leader_seq` of an event without a leader, or whose leader was not in the log when the event was appended.

It is a sentinel instead of a null because pandas turns nullable integers into floats.
"""

_ARROW_TYPES: Final = {
    "text": pa.string(),
    "integer": pa.int64(),
    "time": pa.timestamp("us", tz="UTC"),
    "digest": pa.binary(),
    "texts": pa.list_(pa.string()),
}


def arrow_schema(columns: Iterable[EventColumn]) -> pa.Schema:
    """Return the columns of an event as an Arrow schema."""
    return pa.schema([pa.field(column.name, _ARROW_TYPES[column.type], nullable=column.nullable) for column in columns])


LOG_SCHEMA: Final = arrow_schema(column for column in EVENT_COLUMNS if column.in_log)
"""One row for each event, in order of `seq`. `occurred` is `received` if the event has no time of its own."""

LAST_SEQ_HEADER: Final = "Headrace-Last-Seq"
"""The last seq of a response to `batch-get` that does not have all requested events."""

HEAD_HEADER: Final = "Headrace-Log-Head"
