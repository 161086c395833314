"""What leases are balanced by: capacities, queues, priorities, restarts. Crews are told apart by a digest, so that they may be large."""

from __future__ import annotations

import json
from hashlib import blake2b

import sqlalchemy as sa
from alembic import op

revision = "r0003"
down_revision = "r0002"
branch_labels = None
depends_on = None

LOSES = "priorities, restarts and retries of triggers, capacities and queues of jobs, and the sums of runs that are forgotten"

ZERO = ("priority", "restarts")
NOTHING = ("max_restarts", "retry_at", "started")


def upgrade() -> None:
    """Add the columns."""
    for name in ZERO:
        op.add_column("triggers", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    for name in NOTHING:
        op.add_column("triggers", sa.Column(name, sa.BigInteger()))
    op.add_column("triggers", sa.Column("run_id", sa.Text()))
    op.create_index("ix_triggers_run_id", "triggers", ["run_id"])
    op.add_column("jobs", sa.Column("capacity", sa.BigInteger()))
    op.add_column("jobs", sa.Column("queues", sa.Text(), server_default='["default"]', nullable=False))
    op.add_column("jobs", sa.Column("log_url", sa.Text()))
    op.add_column("jobs", sa.Column("version", sa.Text()))
    op.add_column("jobs", sa.Column("blocked", sa.Text()))
    sums = [sa.Column(name, sa.BigInteger(), nullable=False) for name in ("runs", "failed", "events", "rows", "last")]
    names = [sa.Column(name, sa.Text(), nullable=False) for name in ("project", "pipeline")]
    op.create_table("forgotten_runs", *names, *sums, sa.PrimaryKeyConstraint("project", "pipeline", name="pk_forgotten_runs"))
    _rename_in_failures("kind", "type")
    _name_crews_by_digest()


def _rename_in_failures(before: str, after: str) -> None:
    triggers = sa.table("triggers", sa.column("id"), sa.column("failure"))
    bind = op.get_bind()
    for row in bind.execute(sa.select(triggers.c.id, triggers.c.failure).where(triggers.c.failure.is_not(None))).all():
        failure = {after if name == before else name: value for name, value in json.loads(row.failure).items()}
        bind.execute(sa.update(triggers).where(triggers.c.id == row.id).values(failure=json.dumps(failure)))


def _name_crews_by_digest() -> None:
    op.add_column("crews", sa.Column("digest", sa.LargeBinary()))
    crews = sa.table("crews", sa.column("id"), sa.column("triggers"), sa.column("digest", sa.LargeBinary()))
    bind = op.get_bind()
    for row in bind.execute(sa.select(crews.c.id, crews.c.triggers)).all():
        digest = blake2b(row.triggers.encode(), digest_size=16).digest()
        bind.execute(sa.update(crews).where(crews.c.id == row.id).values(digest=digest))
    on_postgresql = bind.dialect.name == "postgresql"
    if on_postgresql:  # a database that was here before went back without it
        op.execute("ALTER TABLE crews DROP CONSTRAINT IF EXISTS uq_crews_triggers")
    with op.batch_alter_table("crews") as altered:
        altered.alter_column("digest", existing_type=sa.LargeBinary(), nullable=False)
        if not on_postgresql:
            altered.drop_constraint("uq_crews_triggers", type_="unique")
        altered.create_unique_constraint("uq_crews_digest", ["digest"])


def downgrade() -> None:
    """Take them away again. On PostgreSQL crews stay without a constraint: some may be too large for one."""
    _rename_in_failures("type", "kind")
    with op.batch_alter_table("crews") as crews:
        crews.drop_constraint("uq_crews_digest", type_="unique")
        crews.drop_column("digest")
        if op.get_bind().dialect.name == "sqlite":
            crews.create_unique_constraint("uq_crews_triggers", ["triggers"])
    with op.batch_alter_table("jobs") as jobs:
        for name in ("capacity", "queues", "log_url", "version", "blocked"):
            jobs.drop_column(name)
    op.drop_table("forgotten_runs")
    op.drop_index("ix_triggers_run_id", "triggers")
    with op.batch_alter_table("triggers") as triggers:
        for name in (*ZERO, *NOTHING, "run_id"):
            triggers.drop_column(name)
