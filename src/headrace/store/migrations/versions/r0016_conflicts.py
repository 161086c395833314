"""How many events each trigger fired under an id that is known with another payload."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0016"
down_revision = "r0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("triggers", sa.Column("conflicts", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("triggers", "conflicts")
