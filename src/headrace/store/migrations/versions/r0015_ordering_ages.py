"""What the ordering forgets by age: when leaders were given up, and an index that finds what was handled first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0015"
down_revision = "r0014"
branch_labels = None
depends_on = None

LOSES = "when leaders were given up as lost"

INDEXES = {"ordering_handled": ["scope_id", "at"]}


def upgrade() -> None:
    """Add the columns and the indexes."""
    for name in ("at", "number"):
        op.add_column("ordering_given_up", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    for table, columns in INDEXES.items():
        op.create_index(f"ix_{table}_{'_'.join(columns)}", table, columns)


def downgrade() -> None:
    """Drop them."""
    for table, columns in INDEXES.items():
        op.drop_index(f"ix_{table}_{'_'.join(columns)}", table)
    for name in ("number", "at"):
        op.drop_column("ordering_given_up", name)
