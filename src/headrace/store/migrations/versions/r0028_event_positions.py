"""A scope keeps the positions of the events that it has ordered, for triggers that fire on them later."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0028"
down_revision = "r0027"
branch_labels = None
depends_on = None

LOSES = "the positions of events that were ordered"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "event_positions",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("batch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("incarnation", "first_seq", "batch", name="pk_event_positions"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("event_positions")
