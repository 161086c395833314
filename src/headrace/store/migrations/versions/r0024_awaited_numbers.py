"""Waits of task runs for events have numbers that grow, and events may be released as members of a long cycle."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0024"
down_revision = "r0023"
branch_labels = None
depends_on = None

LOSES = "nothing"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Number the waits in the order of their runs' ids, and find them by number; add the column for cycles."""
    _set_aside()
    op.create_table(
        "awaited_events",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("head", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_awaited_events"),
        sa.UniqueConstraint("run_id", name="uq_awaited_events_run_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "awaited_terms",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("term", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("kind", "term", "number", name="pk_awaited_terms"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_awaited_terms_number", "awaited_terms", ["number"])
    op.execute(
        "INSERT INTO awaited_events (run_id, project, event, head) SELECT run_id, project, event, head FROM r0024_events ORDER BY run_id"
    )
    op.execute(
        "INSERT INTO awaited_terms (kind, term, number) SELECT t.kind, t.term, e.number FROM r0024_terms t JOIN awaited_events e "
        "ON e.run_id = t.run_id"
    )
    _drop_set_aside()
    op.add_column("ordering_releases", sa.Column("members", sa.LargeBinary()))


def downgrade() -> None:
    """Find waits by the ids of their runs again; members of a long cycle that were not released yet wait for their leaders."""
    op.execute("DELETE FROM ordering_releases WHERE state NOT IN ('waiting', 'blocked')")
    op.drop_column("ordering_releases", "members")
    _set_aside()
    op.create_table(
        "awaited_events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("head", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_awaited_events"),
    )
    op.create_table(
        "awaited_terms",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("term", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "term", "run_id", name="pk_awaited_terms"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_awaited_terms_run_id", "awaited_terms", ["run_id"])
    op.execute("INSERT INTO awaited_events (run_id, project, event, head) SELECT run_id, project, event, head FROM r0024_events")
    op.execute(
        "INSERT INTO awaited_terms (kind, term, run_id) SELECT t.kind, t.term, e.run_id FROM r0024_terms t JOIN r0024_events e "
        "ON e.number = t.number"
    )
    _drop_set_aside()


def _set_aside() -> None:
    op.execute("CREATE TABLE r0024_events AS SELECT * FROM awaited_events")
    op.execute("CREATE TABLE r0024_terms AS SELECT * FROM awaited_terms")
    op.drop_table("awaited_terms")
    op.drop_table("awaited_events")


def _drop_set_aside() -> None:
    op.drop_table("r0024_terms")
    op.drop_table("r0024_events")
