"""What the log forgets: the keys of its old events, and how far each scope has read redeliveries; indexes that lead with the event."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0012"
down_revision = "r0011"
branch_labels = None
depends_on = None

LOSES = "which events were in the log before they were forgotten: copies of them are new then, and their followers wait in vain"


OPEN = "ordering_events"
INDEXES = {"key": True, "leader_key": False}


def upgrade() -> None:
    """Make the table and the column, and turn the indexes round."""
    for name, unique in INDEXES.items():
        op.drop_index(f"ix_{OPEN}_scope_id_{name}", OPEN)
        op.create_index(f"ix_{OPEN}_{name}_scope_id", OPEN, [name, "scope_id"], unique=unique)
    op.create_table(
        "forgotten_keys",
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_forgotten_keys"),
        sqlite_with_rowid=False,
    )
    op.add_column("scopes", sa.Column("again", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Drop them, and turn the indexes back."""
    op.drop_column("scopes", "again")
    op.drop_table("forgotten_keys")
    for name, unique in INDEXES.items():
        op.drop_index(f"ix_{OPEN}_{name}_scope_id", OPEN)
        op.create_index(f"ix_{OPEN}_scope_id_{name}", OPEN, ["scope_id", name], unique=unique)
