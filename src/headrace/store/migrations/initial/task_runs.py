"""The tables of task runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headrace.store.migrations.initial.columns import bigint, serial, text


def create() -> None:
    """Create the tables and their indexes."""
    op.create_table(
        "task_runs",
        *text("run_id", "project", "task", "state"),
        *bigint("attempt", "step"),
        *bigint("trigger_id", null=True),
        *text("next_method", null=True),
        *text("next_kwargs"),
        *text("callback", null=True),
        *bigint("job_id", null=True),
        *bigint("epoch", "head", "created", "changed"),
        *bigint("timeout_at", null=True),
        *text("timeout_method", null=True),
        *bigint("finished", null=True),
        *text("result", "error", null=True),
        sa.PrimaryKeyConstraint("run_id", name="pk_task_runs"),
    )
    op.create_index("ix_task_runs_changed_run_id", "task_runs", ["changed", "run_id"])
    op.create_index("ix_task_runs_finished", "task_runs", ["finished"])
    op.create_index("ix_task_runs_state_project_task_changed_run_id", "task_runs", ["state", "project", "task", "changed", "run_id"])
    op.create_index("ix_task_runs_timeout_at", "task_runs", ["timeout_at"])
    op.create_index("ix_task_runs_trigger_id", "task_runs", ["trigger_id"])
    op.create_table(
        "event_waits",
        serial("number"),
        *text("run_id", "project", "event"),
        *bigint("head"),
        sa.PrimaryKeyConstraint("number", name="pk_event_waits"),
        sa.UniqueConstraint("run_id", name="uq_event_waits_run_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "event_wait_terms",
        *text("kind", "term"),
        *bigint("number"),
        sa.PrimaryKeyConstraint("kind", "term", "number", name="pk_event_wait_terms"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_event_wait_terms_number", "event_wait_terms", ["number"])
    op.create_table(
        "run_events",
        *text("run_id"),
        *bigint("seq"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_events"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_run_events_seq", "run_events", ["seq"])
