"""The table of streams that went on with another event log. Times are microseconds since the epoch in UTC."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Table, Text

from headrace.store.tables.base import Number, metadata

# Streams whose upstreams were advanced for another log, or past what a restored database has, and that a person let go on.
adopted_streams = Table(
    "adopted_streams",
    metadata,
    Column("id", Number, primary_key=True),
    Column("stream_id", BigInteger, nullable=False, index=True),
    Column("at", BigInteger, nullable=False),
    Column("log", Text, nullable=False),
    Column("receipts", BigInteger, nullable=False),  # of the mark that the upstream kept
    Column("missing", BigInteger),  # receipts that the restored database does not have; null: another log has them
    sqlite_autoincrement=True,
)
