"""A pipeline says what becomes of the followers of a failed event."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0031"
down_revision = "r0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("pipelines", sa.Column("on_failure", sa.Text(), nullable=False, server_default="release"))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("pipelines", "on_failure")
