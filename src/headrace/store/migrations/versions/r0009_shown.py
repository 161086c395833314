"""What people are shown of scopes: which batch runs and who drives it, how long events were held; and which runs took an event."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "r0009"
down_revision = "r0008"
branch_labels = None
depends_on = None

LOSES = "how long events of webhooks were held, and which runs took an event"

LEVELS = 62


def upgrade() -> None:
    """Add the columns, and say of each run that is there where its events are."""
    op.add_column("jobs", sa.Column("batch", sa.Text()))
    op.add_column("scopes", sa.Column("job_id", sa.BigInteger()))
    op.add_column("ordering_scopes", sa.Column("holds", sa.Text(), nullable=False, server_default="[]"))
    for name in ("first_seq", "last_seq", "node"):
        op.add_column("runs", sa.Column(name, sa.BigInteger()))
    op.create_index("ix_runs_node", "runs", ["node"])
    connection = op.get_bind()
    place = sa.text("UPDATE runs SET first_seq = :first, last_seq = :last, node = :node WHERE run_id = :run")
    for run, seqs in connection.execute(sa.text("SELECT run_id, seqs FROM runs")).all():
        stretch = json.loads(seqs)
        if stretch:
            first, last = min(one[0] for one in stretch), max(one[1] for one in stretch)
            if 0 <= first <= last < 1 << LEVELS:
                connection.execute(place, {"run": run, "first": first, "last": last, "node": _node(first, last)})


def downgrade() -> None:
    """Drop them, with what they hold."""
    op.drop_index("ix_runs_node", "runs")
    for name in ("node", "last_seq", "first_seq"):
        op.drop_column("runs", name)
    op.drop_column("ordering_scopes", "holds")
    op.drop_column("scopes", "job_id")
    op.drop_column("jobs", "batch")


def _node(first: int, last: int) -> int:
    level = (first ^ last).bit_length()
    return ((first >> level) << (level + 1)) | (1 << level)
