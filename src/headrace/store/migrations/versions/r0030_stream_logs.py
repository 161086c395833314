"""The books count the receipts of each stream, and say which upstreams of other logs were adopted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0030"
down_revision = "r0029"
branch_labels = None
depends_on = None

LOSES = "which streams were adopted from other event logs"


def upgrade() -> None:
    """Add the column and the table. Receipts are counted from now on."""
    op.add_column("custody_streams", sa.Column("receipts", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "adopted_streams",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.Column("receipts", sa.BigInteger(), nullable=False),
        sa.Column("missing", sa.BigInteger()),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_adopted_streams_stream_id", "adopted_streams", ["stream_id"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("adopted_streams")
    op.drop_column("custody_streams", "receipts")
