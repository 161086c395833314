"""The tables of pipeline runs and scopes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headrace.store.migrations.initial.columns import bigint, blob, create_partial_index, text


def create() -> None:
    """Create the tables and their indexes."""
    _create_runs()
    _create_scopes()
    _create_plans()


def _create_runs() -> None:
    op.create_table(
        "runs",
        *text("run_id", "project", "pipeline", "scope"),
        *bigint("batch", "attempt"),
        *text("state"),
        *bigint("started"),
        *bigint("finished", null=True),
        *bigint("events"),
        *bigint("rows", null=True),
        *text("seqs"),
        *text("error", null=True),
        *bigint("first_seq", "last_seq", "interval_node", null=True),
        *text("incarnation", default=""),
        sa.PrimaryKeyConstraint("run_id", name="pk_runs"),
    )
    op.create_index("ix_runs_interval_node", "runs", ["interval_node"])
    op.create_index("ix_runs_project_pipeline", "runs", ["project", "pipeline"])
    op.create_index("ix_runs_started", "runs", ["started"])
    create_partial_index("ix_runs_running", "runs", ["scope"], where="state = 'running'")
    op.create_table(
        "run_totals",
        *text("project", "pipeline"),
        *bigint("runs", "failed", "events", "rows", "last"),
        sa.PrimaryKeyConstraint("project", "pipeline", name="pk_run_totals"),
    )
    op.create_table(
        "pipeline_dead_letters",
        *text("id", "project", "scope", "pipeline", "run_id"),
        *bigint("batch", "events"),
        *text("seqs", "error"),
        *bigint("attempts"),
        *text("state"),
        *bigint("received"),
        *bigint("acted", null=True),
        *blob("slice", null=True),
        sa.PrimaryKeyConstraint("id", name="pk_pipeline_dead_letters"),
    )
    op.create_index("ix_pipeline_dead_letters_received", "pipeline_dead_letters", ["received"])
    op.create_index("ix_pipeline_dead_letters_state_acted", "pipeline_dead_letters", ["state", "acted"])


def _create_scopes() -> None:
    op.create_table(
        "scopes",
        *text("scope", "project"),
        *bigint("cursor", "batch", "ordered", "waiting", "lost", "late", "cycles", "updated"),
        *bigint("low_watermark", "last_redelivery_id", default="0"),
        *text("report", default="{}"),
        *bigint("job_id", null=True),
        *text("incarnation", default=""),
        *bigint("begin_seq", "begin_redelivery_id", "epoch", default="0"),
        sa.PrimaryKeyConstraint("scope", name="pk_scopes"),
    )
    op.create_table(
        "scope_leases", *text("scope"), *bigint("job_id", "epoch", "granted"), sa.PrimaryKeyConstraint("scope", name="pk_scope_leases")
    )
    op.create_table(
        "scope_state", *text("incarnation", "key"), *blob("value"), sa.PrimaryKeyConstraint("incarnation", "key", name="pk_scope_state")
    )
    op.create_table(
        "event_positions",
        *text("incarnation"),
        *bigint("first_seq", "batch", "last_seq"),
        *blob("data"),
        sa.PrimaryKeyConstraint("incarnation", "first_seq", "batch", name="pk_event_positions"),
    )


def _create_plans() -> None:
    op.create_table(
        "planned_runs",
        *text("incarnation"),
        *bigint("batch", "number"),
        *text("pipeline", "part"),
        *text("table_name", "format", "dead_letter_id", null=True),
        *bigint("events", "first_seq", "slice", "begun", "ended"),
        sa.PrimaryKeyConstraint("incarnation", "batch", "number", name="pk_planned_runs"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_planned_runs_incarnation_batch_slice", "planned_runs", ["incarnation", "batch", "slice"])
    op.create_index("ix_planned_runs_incarnation_first_seq", "planned_runs", ["incarnation", "first_seq"])
    op.create_table(
        "plan_slices",
        *text("incarnation"),
        *bigint("batch", "number"),
        *blob("data"),
        sa.PrimaryKeyConstraint("incarnation", "batch", "number", name="pk_plan_slices"),
    )
