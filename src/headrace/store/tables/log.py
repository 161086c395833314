"""The tables of the event log."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Index, LargeBinary, Table, Text

from headrace.store.tables.base import Number, metadata
from headrace.wire.event_schema import EVENT_COLUMNS

_TYPES: Final = {"text": Text, "integer": BigInteger, "time": BigInteger, "digest": LargeBinary}

events = Table(
    "events",
    metadata,
    Column("seq", Number, primary_key=True, autoincrement=False),
    *(
        Column(column.name, _TYPES[column.type], nullable=column.nullable)
        for column in EVENT_COLUMNS
        if column.stored and column.name != "seq"
    ),
    Index(None, "key", unique=True),
)

# The keys of pruned events: they identify later copies, and leaders that arrived before. Retention deletes them later.
pruned_event_keys = Table(
    "pruned_event_keys",
    metadata,
    Column("key", LargeBinary, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Index(None, "seq"),
    sqlite_with_rowid=False,
)

firings = Table(
    "firings",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("trigger_id", BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
