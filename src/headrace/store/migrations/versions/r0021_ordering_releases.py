"""Events whose followers are released in slices, and an index that finds these in order."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0021"
down_revision = "r0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, the column and the index."""
    op.create_table(
        "ordering_releases",
        sa.Column("scope_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("released", sa.BigInteger(), nullable=False),
        sa.Column("claim", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("scope_id", "key", "state", name="pk_ordering_releases"),
        sqlite_with_rowid=False,
    )
    op.add_column("ordering_scopes", sa.Column("releasing", sa.BigInteger(), nullable=False, server_default="0"))
    op.drop_index("ix_ordering_events_leader_key_scope_id", "ordering_events")
    op.create_index("ix_ordering_events_leader_key_position_scope_id", "ordering_events", ["leader_key", "position", "scope_id"])


def downgrade() -> None:
    """Make ready at once what was to become ready in slices, and drop them."""
    op.execute(
        "UPDATE ordering_events SET state = 'ready', due = since WHERE state = 'blocked' AND EXISTS (SELECT 1 FROM ordering_releases r "
        "WHERE r.scope_id = ordering_events.scope_id AND r.key = ordering_events.leader_key)"
    )
    op.drop_index("ix_ordering_events_leader_key_position_scope_id", "ordering_events")
    op.create_index("ix_ordering_events_leader_key_scope_id", "ordering_events", ["leader_key", "scope_id"])
    op.drop_column("ordering_scopes", "releasing")
    op.drop_table("ordering_releases")
