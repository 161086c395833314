"""A dead letter of a pipeline has its run's slice, so that its events keep their order and positions when it is redriven."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0027"
down_revision = "r0026"
branch_labels = None
depends_on = None

LOSES = "the positions of the events of pipelines' dead letters"


def upgrade() -> None:
    """Add the column."""
    op.add_column("pipeline_letters", sa.Column("slice", sa.LargeBinary()))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("pipeline_letters", "slice")
