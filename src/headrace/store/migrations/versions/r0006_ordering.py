"""The SQL home of the ordering."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0006"
down_revision = "r0005"
branch_labels = None
depends_on = None

LOSES = "what scopes of webhooks have yet to handle"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "ordering_scopes",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("lookback", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("clock", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("lost", sa.BigInteger(), nullable=False),
        sa.Column("late", sa.BigInteger(), nullable=False),
        sa.Column("cycles", sa.BigInteger(), nullable=False),
        sa.Column("handled", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ordering_scopes"),
        sa.UniqueConstraint("name", name="uq_ordering_scopes_name"),
    )
    op.create_table(
        "ordering_journal",
        sa.Column("scope_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("step", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("scope_id", "version", name="pk_ordering_journal"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "ordering_events",
        sa.Column("scope_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("leader_key", sa.LargeBinary()),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("follows", sa.Text()),
        sa.Column("occurred", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger()),
        sa.Column("mark", sa.Text()),
        sa.Column("due", sa.BigInteger()),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("claim", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("body", sa.Text()),
        sa.PrimaryKeyConstraint("seq", "scope_id", name="pk_ordering_events"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_ordering_events_scope_id_due_position", "ordering_events", ["scope_id", "due", "position"])
    op.create_index("ix_ordering_events_scope_id_key", "ordering_events", ["scope_id", "key"], unique=True)
    op.create_index("ix_ordering_events_scope_id_leader_key", "ordering_events", ["scope_id", "leader_key"])
    op.create_table(
        "ordering_given_up",
        sa.Column("scope_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("scope_id", "key", name="pk_ordering_given_up"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "ordering_handled",
        sa.Column("scope_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope_id", "key", name="pk_ordering_handled"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drop them, with what they hold."""
    op.drop_table("ordering_handled")
    op.drop_table("ordering_given_up")
    op.drop_index("ix_ordering_events_scope_id_due_position", "ordering_events")
    op.drop_index("ix_ordering_events_scope_id_key", "ordering_events")
    op.drop_index("ix_ordering_events_scope_id_leader_key", "ordering_events")
    op.drop_table("ordering_events")
    op.drop_table("ordering_journal")
    op.drop_table("ordering_scopes")
