"""An index that finds the oldest keys of deleted events."""

from __future__ import annotations

from alembic import op

revision = "r0018"
down_revision = "r0017"
branch_labels = None
depends_on = None

NAME = "ix_forgotten_keys_seq"


def upgrade() -> None:
    """Add the index."""
    op.create_index(NAME, "forgotten_keys", ["seq"])


def downgrade() -> None:
    """Drop it."""
    op.drop_index(NAME, table_name="forgotten_keys")
