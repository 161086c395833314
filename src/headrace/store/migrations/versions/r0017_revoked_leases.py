"""Indexes of the triggers that a job has yet to let go, and of those that have a backlog: few, that were looked for among all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0017"
down_revision = "r0016"
branch_labels = None
depends_on = None

REVOKED = "ix_triggers_revoked_job_id"
KEPT = "ix_triggers_backlog"


def upgrade() -> None:
    """Add the indexes."""
    revoked, kept = sa.text("revoked_job_id IS NOT NULL"), sa.text("backlog > 0")
    op.create_index(REVOKED, "triggers", ["revoked_job_id", "stream"], sqlite_where=revoked, postgresql_where=revoked)
    op.create_index(KEPT, "triggers", ["job_id"], sqlite_where=kept, postgresql_where=kept)


def downgrade() -> None:
    """Drop them."""
    for name in (KEPT, REVOKED):
        op.drop_index(name, "triggers")
