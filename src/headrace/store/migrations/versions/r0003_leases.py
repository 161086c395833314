"""What leases are balanced by: capacities, queues, priorities, restarts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0003"
down_revision = "r0002"
branch_labels = None
depends_on = None

ZERO = ("priority", "restarts")
NOTHING = ("max_restarts", "retry_at", "started")


def upgrade() -> None:
    """Add the columns."""
    for name in ZERO:
        op.add_column("triggers", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    for name in NOTHING:
        op.add_column("triggers", sa.Column(name, sa.BigInteger()))
    op.add_column("triggers", sa.Column("run_id", sa.Text()))
    op.create_index("ix_triggers_run_id", "triggers", ["run_id"])
    op.add_column("jobs", sa.Column("capacity", sa.BigInteger()))
    op.add_column("jobs", sa.Column("queues", sa.Text(), server_default='["default"]', nullable=False))
    op.add_column("jobs", sa.Column("log_url", sa.Text()))
    op.add_column("jobs", sa.Column("version", sa.Text()))


def downgrade() -> None:
    """Take them away again."""
    with op.batch_alter_table("jobs") as jobs:
        for name in ("capacity", "queues", "log_url", "version"):
            jobs.drop_column(name)
    op.drop_index("ix_triggers_run_id", "triggers")
    with op.batch_alter_table("triggers") as triggers:
        for name in (*ZERO, *NOTHING, "run_id"):
            triggers.drop_column(name)
