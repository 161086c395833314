"""The tables of jobs, projects, triggers and pipelines."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headrace.store.migrations.initial.columns import bigint, boolean, create_partial_index, json, serial, text


def create() -> None:
    """Create the tables and their indexes."""
    _create_jobs()
    _create_projects()
    _create_triggers()


def _create_jobs() -> None:
    op.create_table("meta", *text("name"), *bigint("value"), sa.PrimaryKeyConstraint("name", name="pk_meta"))
    op.create_table("age_marks", *bigint("age", "wall", "head"), sa.PrimaryKeyConstraint("age", name="pk_age_marks"))
    op.create_table(
        "jobs",
        serial("id"),
        *text("registration_id", "kind", "project", "hostname"),
        *bigint("pid"),
        *text("state", "desired_state"),
        *text("reason", null=True),
        *bigint("registered", "heartbeat"),
        *bigint("ended", "capacity", null=True),
        *text("queues", default='["default"]'),
        *text("log_url", "version", "blocked", "batch", null=True),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("registration_id", name="uq_jobs_registration_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.create_table(
        "stream_reports",
        *bigint("job_id"),
        *text("stream", "state"),
        *bigint("read", "advanced", "outstanding"),
        *json("counters"),
        *text("report"),
        *bigint("updated"),
        sa.PrimaryKeyConstraint("job_id", "stream", name="pk_stream_reports"),
    )
    op.create_table(
        "watch_samples",
        *bigint("trigger_id", "samples", "matched"),
        *text("leaves"),
        *bigint("updated"),
        sa.PrimaryKeyConstraint("trigger_id", name="pk_watch_samples"),
    )


def _create_projects() -> None:
    op.create_table(
        "projects", *text("name"), *bigint("declared"), *text("declaration", null=True), sa.PrimaryKeyConstraint("name", name="pk_projects")
    )
    op.create_table(
        "staged_triggers",
        *text("declaration", "name", "project", "classpath", "kwargs"),
        *text("kwargs_digest", "stream", null=True),
        *text("queue"),
        *bigint("priority"),
        *bigint("max_restarts", "same", null=True),
        *bigint("staged"),
        sa.PrimaryKeyConstraint("declaration", "name", name="pk_staged_triggers"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "pipelines",
        serial("id"),
        *text("project", "name", "patterns"),
        *text("table_name", null=True),
        *text("batch"),
        *boolean("removed"),
        *text("on_failure", default="release"),
        sa.PrimaryKeyConstraint("id", name="pk_pipelines"),
        sa.UniqueConstraint("project", "name", name="uq_pipelines_project_name"),
        sqlite_autoincrement=True,
    )


def _create_triggers() -> None:
    op.create_table(
        "triggers",
        serial("id"),
        *text("project", "name", "classpath", "kwargs"),
        *text("kwargs_digest", "stream", null=True),
        *text("queue", "state"),
        *text("failure", null=True),
        *bigint("failures", "fired", "rejected"),
        *bigint("last_fired", "job_id", null=True),
        *bigint("epoch"),
        *bigint("revoked_job_id", null=True),
        *bigint("declared"),
        *bigint("backlog", "spilled", "priority", "restarts", default="0"),
        *bigint("max_restarts", "retry_at", "started", "removed", null=True),
        *text("run_id", null=True),
        *bigint("conflicts", default="0"),
        *bigint("registered", null=True),
        sa.PrimaryKeyConstraint("id", name="pk_triggers"),
        sa.UniqueConstraint("project", "name", name="uq_triggers_project_name"),
        sqlite_autoincrement=True,
    )
    create_partial_index("ix_triggers_backlog", "triggers", ["job_id"], where="backlog > 0")
    op.create_index("ix_triggers_job_id", "triggers", ["job_id"])
    create_partial_index("ix_triggers_revoked_job_id", "triggers", ["revoked_job_id", "stream"], where="revoked_job_id IS NOT NULL")
    op.create_index("ix_triggers_run_id", "triggers", ["run_id"])
    op.create_index("ix_triggers_stream_job_id", "triggers", ["stream", "job_id"])
