"""Sums of runs, the age of the database, and indexes for task runs, for awaited events and for what waits longest."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0013"
down_revision = "r0012"
branch_labels = None
depends_on = None

LOSES = "nothing"

_SUMS = ("runs", "failed", "events", "rows")
_COUNTED = """
SELECT project, pipeline, count(*) AS runs,
    sum(CASE WHEN state = 'failed' THEN 1 ELSE 0 END) AS failed,
    sum(CASE WHEN state = 'succeeded' THEN events ELSE 0 END) AS events,
    sum(CASE WHEN state = 'succeeded' THEN coalesce("rows", 0) ELSE 0 END) AS "rows",
    max(started) AS last
FROM runs GROUP BY project, pipeline
"""


def upgrade() -> None:
    """Count the runs that are kept into the sums of those that are forgotten, and make the indexes."""
    op.rename_table("forgotten_runs", "run_totals")
    _rename_key("forgotten_runs", "run_totals")
    _add_to_totals(+1)
    op.create_table(
        "awaited_terms",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("term", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "term", "run_id", name="pk_awaited_terms"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_awaited_terms_run_id", "awaited_terms", ["run_id"])
    # Whatever the runs that are there wait for: each event of their project is looked at.
    op.execute("INSERT INTO awaited_terms (kind, term, run_id) SELECT 'glob', project || '/*', run_id FROM awaited_events")
    op.create_table(
        "age_marks",
        sa.Column("age", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("wall", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("age", name="pk_age_marks"),
    )
    op.create_index("ix_run_events_seq", "run_events", ["seq"])
    op.create_index("ix_deferred_runs_changed_run_id", "deferred_runs", ["changed", "run_id"])
    op.drop_index("ix_deferred_runs_state_project", "deferred_runs")
    columns = ["state", "project", "task", "changed", "run_id"]
    op.create_index("ix_deferred_runs_state_project_task_changed_run_id", "deferred_runs", columns)
    waiting = sa.text("state = 'waiting'")
    op.create_index(
        "ix_ordering_events_scope_id_since", "ordering_events", ["scope_id", "since"], sqlite_where=waiting, postgresql_where=waiting
    )


def downgrade() -> None:
    """Take the runs that are kept out of the sums, and drop the indexes."""
    op.drop_index("ix_ordering_events_scope_id_since", "ordering_events")
    op.drop_index("ix_deferred_runs_state_project_task_changed_run_id", "deferred_runs")
    op.create_index("ix_deferred_runs_state_project", "deferred_runs", ["state", "project"])
    op.drop_index("ix_deferred_runs_changed_run_id", "deferred_runs")
    op.drop_index("ix_run_events_seq", "run_events")
    op.drop_table("age_marks")
    op.drop_table("awaited_terms")
    _add_to_totals(-1)
    op.execute("DELETE FROM run_totals WHERE runs = 0")
    op.rename_table("run_totals", "forgotten_runs")
    _rename_key("run_totals", "forgotten_runs")


def _rename_key(before: str, after: str) -> None:
    """Rename the primary key, which has its table's name; SQLite keeps the old name and tells nobody of it."""
    if op.get_context().dialect.name == "postgresql":
        op.execute(f"ALTER INDEX pk_{before} RENAME TO pk_{after}")


def _add_to_totals(sign: int) -> None:
    connection = op.get_bind()
    for found in connection.exec_driver_sql(_COUNTED).mappings().all():
        given = {name: sign * int(found[name]) for name in _SUMS} | {name: found[name] for name in ("project", "pipeline", "last")}
        added = ", ".join(f'"{name}" = "{name}" + :{name}' for name in _SUMS)
        change = f"UPDATE run_totals SET {added}, last = CASE WHEN last < :last THEN :last ELSE last END "  # noqa: S608
        changed = connection.execute(sa.text(f"{change} WHERE project = :project AND pipeline = :pipeline"), given)
        if not changed.rowcount:
            names = ", ".join(f'"{name}"' for name in given)
            values = ", ".join(f":{name}" for name in given)
            connection.execute(sa.text(f"INSERT INTO run_totals ({names}) VALUES ({values})"), given)  # noqa: S608
