"""What a pipeline is given again, what it gave up on, and what a scope tells of itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0008"
down_revision = "r0007"
branch_labels = None
depends_on = None

LOSES = "every dead letter of a pipeline, and what pipelines were still to be given again"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables and the columns."""
    op.create_table(
        "redeliveries",
        sa.Column("id", NUMBER, nullable=False, autoincrement=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("trigger_id", sa.BigInteger()),
        sa.Column("letter_id", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_redeliveries"),
    )
    op.create_index("ix_redeliveries_seq", "redeliveries", ["seq"])
    op.create_table(
        "pipeline_letters",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("seqs", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("acted", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_pipeline_letters"),
    )
    op.create_index("ix_pipeline_letters_received", "pipeline_letters", ["received"])
    op.add_column("scopes", sa.Column("kept", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("scopes", sa.Column("report", sa.Text(), nullable=False, server_default="{}"))


def downgrade() -> None:
    """Drop them, with what they hold."""
    op.drop_column("scopes", "report")
    op.drop_column("scopes", "kept")
    op.drop_index("ix_pipeline_letters_received", "pipeline_letters")
    op.drop_table("pipeline_letters")
    op.drop_index("ix_redeliveries_seq", "redeliveries")
    op.drop_table("redeliveries")
