"""The tables of the event log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headrace.store.migrations.initial.columns import bigint, blob, row_number, text


def create() -> None:
    """Create the tables and their indexes."""
    op.create_table(
        "events",
        row_number("seq"),
        *blob("key"),
        *blob("leader_key", null=True),
        *bigint("leader_seq"),
        *text("source", "id", "type"),
        *text("subject", null=True),
        *bigint("occurred", "received"),
        *text("follows", "trace", null=True),
        *text("payload"),
        *text("stream", "lane", null=True),
        *bigint("position", null=True),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
    )
    op.create_index("ix_events_key", "events", ["key"], unique=True)
    op.create_table(
        "pruned_event_keys",
        *blob("key"),
        *bigint("seq"),
        sa.PrimaryKeyConstraint("key", name="pk_pruned_event_keys"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_pruned_event_keys_seq", "pruned_event_keys", ["seq"])
    op.create_table(
        "firings", *bigint("seq", "trigger_id"), sa.PrimaryKeyConstraint("seq", "trigger_id", name="pk_firings"), sqlite_with_rowid=False
    )
    op.create_table(
        "redeliveries",
        row_number("id"),
        *bigint("seq"),
        *bigint("trigger_id", null=True),
        *text("dead_letter_id", null=True),
        sa.PrimaryKeyConstraint("id", name="pk_redeliveries"),
    )
    op.create_index("ix_redeliveries_seq", "redeliveries", ["seq"])
