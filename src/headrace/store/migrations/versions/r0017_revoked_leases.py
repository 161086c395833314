"""An index of the triggers that a job has yet to let go: there are few, and they were looked for among all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0017"
down_revision = "r0016"
branch_labels = None
depends_on = None

NAME = "ix_triggers_revoked_job_id"


def upgrade() -> None:
    """Add the index."""
    some = sa.text("revoked_job_id IS NOT NULL")
    op.create_index(NAME, "triggers", ["revoked_job_id", "stream"], sqlite_where=some, postgresql_where=some)


def downgrade() -> None:
    """Drop it."""
    op.drop_index(NAME, "triggers")
