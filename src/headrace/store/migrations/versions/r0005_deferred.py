"""Deferred runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0005"
down_revision = "r0004"
branch_labels = None
depends_on = None

LOSES = "every task run, also those that wait"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "deferred_runs",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("trigger_id", sa.BigInteger()),
        sa.Column("next_method", sa.Text()),
        sa.Column("next_kwargs", sa.Text(), nullable=False),
        sa.Column("callback", sa.Text()),
        sa.Column("job_id", sa.BigInteger()),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("timeout_at", sa.BigInteger()),
        sa.Column("timeout_method", sa.Text()),
        sa.Column("finished", sa.BigInteger()),
        sa.Column("result", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.PrimaryKeyConstraint("run_id", name="pk_deferred_runs"),
    )
    op.create_index("ix_deferred_runs_state_project", "deferred_runs", ["state", "project"])
    op.create_index("ix_deferred_runs_trigger_id", "deferred_runs", ["trigger_id"])
    op.create_index("ix_deferred_runs_timeout_at", "deferred_runs", ["timeout_at"])
    op.create_index("ix_deferred_runs_finished", "deferred_runs", ["finished"])


def downgrade() -> None:
    """Drop it, with what it holds."""
    op.drop_index("ix_deferred_runs_finished", "deferred_runs")
    op.drop_index("ix_deferred_runs_timeout_at", "deferred_runs")
    op.drop_index("ix_deferred_runs_trigger_id", "deferred_runs")
    op.drop_index("ix_deferred_runs_state_project", "deferred_runs")
    op.drop_table("deferred_runs")
