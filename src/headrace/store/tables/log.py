"""The tables of the event log."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, LargeBinary, Table, Text

from headrace.store.tables.base import Number, metadata

events = Table(
    "events",
    metadata,
    Column("seq", Number, primary_key=True, autoincrement=False),
    Column("key", LargeBinary, nullable=False),
    Column("leader_key", LargeBinary),
    Column("leader_seq", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("subject", Text),
    Column("occurred", BigInteger, nullable=False),
    Column("received", BigInteger, nullable=False),
    Column("follows", Text),
    Column("trace", Text),
    Column("payload", Text, nullable=False),
    Column("stream", Text),
    Column("lane", Text),
    Column("position", BigInteger),
    Index(None, "key", unique=True),
)

# The keys of events that the log has forgotten: a copy is still a copy, and a leader is known to have come. Retention deletes them later.
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
