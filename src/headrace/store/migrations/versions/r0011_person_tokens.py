"""Which tokens people were given, so that one can be taken back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0011"
down_revision = "r0010"
branch_labels = None
depends_on = None

LOSES = "which tokens people were given, and that some were taken back: those open again until they expire"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "person_tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("made", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.Column("revoked", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_person_tokens"),
    )


def downgrade() -> None:
    """Drop it, with what it holds."""
    op.drop_table("person_tokens")
