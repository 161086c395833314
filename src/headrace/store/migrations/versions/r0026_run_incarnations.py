"""A run names the incarnation of its scope, so that runs from before a reset are told from later ones."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0026"
down_revision = "r0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Runs that are there are of no known incarnation."""
    op.add_column("runs", sa.Column("incarnation", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("runs", "incarnation")
