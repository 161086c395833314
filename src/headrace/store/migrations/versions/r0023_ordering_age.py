"""Waits for leaders by the age of the database, in the scopes of webhooks and of task runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0023"
down_revision = "r0022"
branch_labels = None
depends_on = None

LOSES = "nothing"

_DIFFERENCE = "coalesce((SELECT wall - age FROM age_marks ORDER BY age DESC LIMIT 1), 0)"


def upgrade() -> None:
    """Count what waits from the last mark of the age."""
    op.add_column("ordering_scopes", sa.Column("age", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(f"UPDATE ordering_events SET since = since - {_DIFFERENCE}")  # noqa: S608
    given_up = f"at - {_DIFFERENCE}"  # 0 and less would never be forgotten
    op.execute(f"UPDATE ordering_given_up SET at = CASE WHEN {given_up} > 0 THEN {given_up} ELSE 1 END WHERE at > 0")  # noqa: S608


def downgrade() -> None:
    """Count what waits by the wall clock."""
    op.execute(f"UPDATE ordering_given_up SET at = at + {_DIFFERENCE} WHERE at > 0")  # noqa: S608
    op.execute(f"UPDATE ordering_events SET since = since + {_DIFFERENCE}")  # noqa: S608
    op.drop_column("ordering_scopes", "age")
