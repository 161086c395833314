"""Alembic's entry: runs the migrations on the connection that the store hands over, inside the store's own transaction."""

from __future__ import annotations

from alembic import context

import headrace.store.tables.control
import headrace.store.tables.custody
import headrace.store.tables.log
import headrace.store.tables.ordering
import headrace.store.tables.pipelines
import headrace.store.tables.secrets
import headrace.store.tables.task_runs
import headrace.store.tables.webhooks  # noqa: F401
from headrace.store.tables.base import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
