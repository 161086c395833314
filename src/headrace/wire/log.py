"""The event log on the wire: the Arrow schema of GET /execution/events, shared by the api and the pipeline."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

NO_LEADER_SEQ: Final = -1
"""`leader_seq` of an event whose leader was not in the log when it was appended, or that has none.

A sentinel, not a null: pandas turns nullable longs into floats."""

LOG_SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("leader_key", pa.binary()),
        pa.field("leader_seq", pa.int64(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("subject", pa.string()),
        pa.field("occurred", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("received", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("follows", pa.string()),
        pa.field("trace", pa.string()),
        pa.field("payload", pa.string(), nullable=False),
        pa.field("triggers", pa.list_(pa.string()), nullable=False),
    ]
)
"""One row for each event, in order of `seq`. `occurred` is `received` where the event does not say."""

PICKED_HEADER: Final = "Headrace-Picked-To"
"""The last seq of an answer to a pick that does not have all that was asked for."""

HEAD_HEADER: Final = "Headrace-Log-Head"
