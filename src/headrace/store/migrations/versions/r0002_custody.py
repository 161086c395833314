"""The backlog, the ledger of custody, and dead letters that have a state."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headrace.errors import SchemaError

revision = "r0002"
down_revision = "r0001"
branch_labels = None
depends_on = None

LOSES = "the ledger of custody, and which dead letters were redriven or discarded (refused while anything waits in a backlog)"

number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COUNTS = {"triggers": ("backlog", "spilled"), "stream_reports": ("spilled", "resolved", "advances", "advance_errors")}
SECONDS = ("ack_seconds", "advance_seconds")
ANSWERS = ("fired", "rejected", "spilled", "dead_lettered", "failed")
SETTLED = ("settled_fired", "settled_filtered", "settled_rejected", "settled_dead_lettered", "redriven")
TABLES = ("custody_problems", "custody", "crew_reads", "crews", "lanes", "backlog", "spills", "dead_letter_actions")


def upgrade() -> None:
    """Add the tables, and the counters and states of what is there."""
    for table, names in COUNTS.items():
        for name in names:
            op.add_column(table, sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    for name in SECONDS:
        op.add_column("stream_reports", sa.Column(name, sa.Float(), server_default="0", nullable=False))
    _letters()
    _backlog()
    _custody()


def downgrade() -> None:
    """Take it all away again; what waits in a backlog has no place in the older schema, so nothing may wait there."""
    waiting = op.get_bind().execute(sa.text("SELECT count(*) FROM backlog WHERE answer IS NULL")).scalar_one()
    if waiting:
        raise SchemaError(
            f"{waiting} raw events wait in a backlog, and an older schema cannot keep them.",
            hint="Run the triggerer until the backlogs are empty, then go back.",
        )
    for table in TABLES:
        op.drop_table(table)
    op.drop_index(op.f("ix_dead_letters_stream_lane_position"), "dead_letters")
    op.drop_index(op.f("ix_dead_letters_state"), "dead_letters")
    for name in ("acted", "state"):
        op.drop_column("dead_letters", name)
    for name in SECONDS:
        op.drop_column("stream_reports", name)
    for table, names in COUNTS.items():
        for name in names:
            op.drop_column(table, name)


def _letters() -> None:
    op.add_column("dead_letters", sa.Column("state", sa.Text(), server_default="open", nullable=False))
    op.add_column("dead_letters", sa.Column("acted", sa.BigInteger()))
    op.create_index(op.f("ix_dead_letters_state"), "dead_letters", ["state"], unique=False)
    op.create_index(op.f("ix_dead_letters_stream_lane_position"), "dead_letters", ["stream", "lane", "position"], unique=False)
    op.create_table(
        "dead_letter_actions",
        sa.Column("id", number, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dead_letter_actions")),
    )


def _backlog() -> None:
    op.create_table(
        "spills",
        sa.Column("id", number, autoincrement=False, nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.Column("refs", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spills")),
    )
    op.create_table(
        "backlog",
        sa.Column("number", number, autoincrement=False, nullable=False),
        sa.Column("trigger_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("position", sa.BigInteger()),
        sa.Column("spill_id", sa.BigInteger()),
        sa.Column("letter_id", sa.Text()),
        sa.Column("counted", sa.Boolean(), nullable=False),
        sa.Column("answer", sa.Text()),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_backlog")),
    )
    op.create_index(op.f("ix_backlog_trigger_id_number"), "backlog", ["trigger_id", "number"], unique=False)
    op.create_index(op.f("ix_backlog_lane_id_key_trigger_id"), "backlog", ["lane_id", "key", "trigger_id"], unique=True)


def _custody() -> None:
    op.create_table(
        "lanes",
        sa.Column("id", number, nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("after", sa.BigInteger()),
        sa.Column("last", sa.BigInteger()),
        sa.Column("read", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lanes")),
        sa.UniqueConstraint("stream", "lane", name=op.f("uq_lanes_stream_lane")),
    )
    op.create_table(
        "crews",
        sa.Column("id", number, nullable=False),
        sa.Column("triggers", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_crews")),
        sa.UniqueConstraint("triggers", name=op.f("uq_crews_triggers")),
    )
    op.create_table(
        "crew_reads",
        sa.Column("lane_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("crew_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("read", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("lane_id", "crew_id", name=op.f("pk_crew_reads")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "custody",
        sa.Column("lane_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("trigger_id", sa.BigInteger(), autoincrement=False, nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ANSWERS + SETTLED),
        sa.PrimaryKeyConstraint("lane_id", "trigger_id", name=op.f("pk_custody")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "custody_problems",
        sa.Column("id", number, nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("recorded", sa.BigInteger()),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_custody_problems")),
    )
