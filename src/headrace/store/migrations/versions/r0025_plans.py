"""Each scope has a ledger: the plan of its last batch, the runs that are open, and the state of its ordering."""

from __future__ import annotations

from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "r0025"
down_revision = "r0024"
branch_labels = None
depends_on = None

LOSES = "the plans and open runs of pipelines, and the state of their ordering: each pipeline begins anew"

COLUMNS = {
    "incarnation": (sa.Text, ""),
    "begin_seq": (sa.BigInteger, "0"),
    "begin_again": (sa.BigInteger, "0"),
    "epoch": (sa.BigInteger, "0"),
}


def upgrade() -> None:
    """Add the tables and the columns, and give each scope an incarnation."""
    for name, (kind, default) in COLUMNS.items():
        op.add_column("scopes", sa.Column(name, kind(), nullable=False, server_default=default))
    _set_incarnations()
    op.create_table(
        "planned_runs",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("batch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("table_name", sa.Text()),
        sa.Column("format", sa.Text()),
        sa.Column("letter", sa.Text()),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("slice", sa.BigInteger(), nullable=False),
        sa.Column("begun", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("incarnation", "batch", "number", name="pk_planned_runs"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_planned_runs_incarnation_first_seq", "planned_runs", ["incarnation", "first_seq"])
    op.create_index("ix_planned_runs_incarnation_batch_slice", "planned_runs", ["incarnation", "batch", "slice"])
    op.create_table(
        "plan_slices",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("batch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("incarnation", "batch", "number", name="pk_plan_slices"),
    )
    op.create_table(
        "scope_state",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("incarnation", "key", name="pk_scope_state"),
    )


def downgrade() -> None:
    """Drop them."""
    for name in ("scope_state", "plan_slices", "planned_runs"):
        op.drop_table(name)
    for name in COLUMNS:
        op.drop_column("scopes", name)


def _set_incarnations() -> None:
    scopes = sa.table("scopes", sa.column("scope"), sa.column("incarnation"))
    connection = op.get_bind()
    for scope in connection.execute(sa.select(scopes.c.scope)).scalars().all():
        connection.execute(sa.update(scopes).where(scopes.c.scope == scope).values(incarnation=uuid4().hex))
