"""Timeouts of task runs by the age of the database, and indexes for the dead letters that retention deletes."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "r0022"
down_revision = "r0021"
branch_labels = None
depends_on = None

LOSES = "nothing"

_DIFFERENCE = "coalesce((SELECT wall - age FROM age_marks ORDER BY age DESC LIMIT 1), 0)"


# An age that begins later than these moments would never come to them.
_MOMENTS = "SELECT 1 FROM deferred_runs WHERE timeout_at IS NOT NULL UNION ALL SELECT 1 FROM ordering_events"
_FIRST_MARK = f"""
INSERT INTO age_marks (age, wall, head) SELECT 0, :now, (SELECT value FROM meta WHERE name = 'head')
WHERE NOT EXISTS (SELECT 1 FROM age_marks) AND EXISTS ({_MOMENTS})
"""  # noqa: S608


def upgrade() -> None:
    """Count timeouts from the last mark of the age, and make the indexes."""
    op.execute(sa.text(_FIRST_MARK).bindparams(sa.bindparam("now", time.time_ns() // 1000, sa.BigInteger())))
    op.execute(f"UPDATE deferred_runs SET timeout_at = timeout_at - {_DIFFERENCE} WHERE timeout_at IS NOT NULL")  # noqa: S608
    op.drop_index("ix_dead_letters_state", "dead_letters")
    op.create_index("ix_dead_letters_state_acted", "dead_letters", ["state", "acted"])
    op.create_index("ix_pipeline_letters_state_acted", "pipeline_letters", ["state", "acted"])


def downgrade() -> None:
    """Say timeouts by the wall clock, and drop the indexes."""
    op.drop_index("ix_pipeline_letters_state_acted", "pipeline_letters")
    op.drop_index("ix_dead_letters_state_acted", "dead_letters")
    op.create_index("ix_dead_letters_state", "dead_letters", ["state"])
    op.execute(f"UPDATE deferred_runs SET timeout_at = timeout_at + {_DIFFERENCE} WHERE timeout_at IS NOT NULL")  # noqa: S608
