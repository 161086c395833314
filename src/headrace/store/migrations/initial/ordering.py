"""The tables of causal ordering."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headrace.store.migrations.initial.columns import bigint, blob, boolean, create_partial_index, serial, text


def create() -> None:
    """Create the tables and their indexes."""
    _create_scopes()
    _create_events()


def _create_scopes() -> None:
    op.create_table(
        "ordering_scopes",
        serial("id"),
        *text("name"),
        *bigint("lookback", "version", "clock"),
        *bigint("age", default="0"),
        *bigint("head", "position", "lost", "late", "cycles", "handled", "held"),
        *bigint("releasing", default="0"),
        *text("holds", default="[]"),
        sa.PrimaryKeyConstraint("id", name="pk_ordering_scopes"),
        sa.UniqueConstraint("name", name="uq_ordering_scopes_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "ordering_journal",
        *bigint("scope_id", "version"),
        *blob("step"),
        sa.PrimaryKeyConstraint("scope_id", "version", name="pk_ordering_journal"),
        sqlite_with_rowid=False,
    )


def _create_events() -> None:
    op.create_table(
        "ordering_events",
        *bigint("scope_id", "seq"),
        *blob("key"),
        *blob("leader_key", null=True),
        *text("source", "id"),
        *text("follows", null=True),
        *bigint("occurred", "since"),
        *boolean("late"),
        *text("state"),
        *bigint("position", null=True),
        *text("mark", null=True),
        *bigint("due", null=True),
        *bigint("attempts"),
        *text("claim", "error", "body", null=True),
        sa.PrimaryKeyConstraint("seq", "scope_id", name="pk_ordering_events"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_ordering_events_key_scope_id", "ordering_events", ["key", "scope_id"], unique=True)
    op.create_index("ix_ordering_events_leader_key_position_scope_id", "ordering_events", ["leader_key", "position", "scope_id"])
    op.create_index("ix_ordering_events_scope_id_due_position", "ordering_events", ["scope_id", "due", "position"])
    create_partial_index("ix_ordering_events_scope_id_since", "ordering_events", ["scope_id", "since"], where="state = 'waiting'")
    op.create_table(
        "ordering_given_up",
        *bigint("scope_id"),
        *blob("key"),
        *bigint("at", "number", default="0"),
        sa.PrimaryKeyConstraint("scope_id", "key", name="pk_ordering_given_up"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "ordering_handled",
        *bigint("scope_id"),
        *blob("key"),
        *bigint("position", "at"),
        sa.PrimaryKeyConstraint("scope_id", "key", name="pk_ordering_handled"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_ordering_handled_scope_id_at", "ordering_handled", ["scope_id", "at"])
    op.create_table(
        "ordering_releases",
        *bigint("scope_id"),
        *blob("key"),
        *text("state"),
        *bigint("number", "released"),
        *text("claim"),
        *blob("members", null=True),
        sa.PrimaryKeyConstraint("scope_id", "key", "state", name="pk_ordering_releases"),
        sqlite_with_rowid=False,
    )
