"""The tables of task runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headrace.store.migrations.initial.columns import bigint, serial, text


def create() -> None:
    """Create the tables and their indexes."""
    op.create_table(
        "deferred_runs",
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
        sa.PrimaryKeyConstraint("run_id", name="pk_deferred_runs"),
    )
    op.create_index("ix_deferred_runs_changed_run_id", "deferred_runs", ["changed", "run_id"])
    op.create_index("ix_deferred_runs_finished", "deferred_runs", ["finished"])
    op.create_index(
        "ix_deferred_runs_state_project_task_changed_run_id", "deferred_runs", ["state", "project", "task", "changed", "run_id"]
    )
    op.create_index("ix_deferred_runs_timeout_at", "deferred_runs", ["timeout_at"])
    op.create_index("ix_deferred_runs_trigger_id", "deferred_runs", ["trigger_id"])
    op.create_table(
        "awaited_events",
        serial("number"),
        *text("run_id", "project", "event"),
        *bigint("head"),
        sa.PrimaryKeyConstraint("number", name="pk_awaited_events"),
        sa.UniqueConstraint("run_id", name="uq_awaited_events_run_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "awaited_terms",
        *text("kind", "term"),
        *bigint("number"),
        sa.PrimaryKeyConstraint("kind", "term", "number", name="pk_awaited_terms"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_awaited_terms_number", "awaited_terms", ["number"])
    op.create_table(
        "run_events",
        *text("run_id"),
        *bigint("seq"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_events"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_run_events_seq", "run_events", ["seq"])
