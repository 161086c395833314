"""The whole raw events of dead letters that are long, apart from the letters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0019"
down_revision = "r0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "dead_letter_texts",
        sa.Column("letter_id", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("letter_id", name=op.f("pk_dead_letter_texts")),
    )
    op.create_index(op.f("ix_dead_letter_texts_received"), "dead_letter_texts", ["received"], unique=False)


def downgrade() -> None:
    """Drop it."""
    op.drop_table("dead_letter_texts")
