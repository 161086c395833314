"""Connections and variables, and triggers' arguments that are sealed: by the api, which has the keys, when it opens the database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0004"
down_revision = "r0003"
branch_labels = None
depends_on = None

LOSES = "every connection and variable, and the sealed arguments of triggers until their project is declared again"


def upgrade() -> None:
    """Add the tables, and what tells sealed arguments apart."""
    op.add_column("triggers", sa.Column("kwargs_digest", sa.Text()))
    op.create_table(
        "connections",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("description", sa.Text()),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("updated", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_connections"),
    )
    op.create_table(
        "variables",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("secret", sa.Boolean(), nullable=False),
        sa.Column("description", sa.Text()),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("updated", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_variables"),
    )


def downgrade() -> None:
    """Drop them, with what they hold. Triggers whose arguments are sealed are gone until their project is declared again."""
    op.execute("UPDATE triggers SET kwargs = '{}', state = 'removed', job_id = NULL WHERE kwargs LIKE 'gAAAA%'")
    op.drop_column("triggers", "kwargs_digest")
    op.drop_table("variables")
    op.drop_table("connections")
