"""The schema of the first release."""

from __future__ import annotations

from headrace.store.migrations.initial import access, control, custody, event_log, ordering, pipelines, task_runs

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table."""
    for tables in (control, event_log, custody, pipelines, ordering, task_runs, access):
        tables.create()
