"""The tables of webhooks, their subscriptions and deliveries."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Table, Text

from headrace.store.tables.base import Number, metadata

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Number, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("url", Text, nullable=False),
    Column("types", Text, nullable=False),  # JSON: globs of event types
    Column("pattern", Text),  # JSON: the event pattern that payloads match; null: all
    Column("secret", Text, nullable=False),  # encrypted
    Column("state", Text, nullable=False),  # active | paused
    Column("policy", Text, nullable=False),  # hold | release: whether a dead event blocks its followers
    Column("max_attempts", BigInteger, nullable=False),
    Column("timeout", BigInteger, nullable=False),  # microseconds for one attempt
    Column("scope_id", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Column("delivered", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("dead", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Number, primary_key=True),
    Column("webhook_id", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False),  # delivered | failed | dead
    Column("status", BigInteger),
    Column("error", Text),
    Column("at", BigInteger, nullable=False),
    Column("took", BigInteger, nullable=False),
    Index(None, "webhook_id", "id"),
    sqlite_autoincrement=True,
)
