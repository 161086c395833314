"""Which job holds each scope, and at which epoch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0020"
down_revision = "r0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "scope_leases",
        sa.Column("scope", sa.Text(), primary_key=True),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("granted", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("scope_leases")
