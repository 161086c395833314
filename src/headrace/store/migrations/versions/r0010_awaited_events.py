"""Task runs may wait for events of the log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0010"
down_revision = "r0009"
branch_labels = None
depends_on = None

LOSES = "which events task runs wait for: such runs wait until their time is up"


def upgrade() -> None:
    """Add the tables and the column; runs that are there count from where the log is now."""
    op.create_table(
        "awaited_events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("head", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_awaited_events"),
    )
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_events"),
        sqlite_with_rowid=False,
    )
    op.add_column("deferred_runs", sa.Column("head", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE deferred_runs SET head = coalesce((SELECT value FROM meta WHERE name = 'head'), 0)")


def downgrade() -> None:
    """Drop them."""
    op.drop_column("deferred_runs", "head")
    op.drop_table("run_events")
    op.drop_table("awaited_events")
