"""${message}."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None

LOSES = "nothing"  # what `headrace db downgrade` says is lost


def upgrade() -> None:
    """Bring the schema up by one step."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Take the step back."""
    ${downgrades if downgrades else "pass"}
