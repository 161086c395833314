"""Alembic's entry: runs the migrations on the connection that the store hands over, inside the store's own transaction."""

from __future__ import annotations

from alembic import context

import headrace.store.deferred_tables
import headrace.store.ordering_tables
import headrace.store.pipeline_tables
import headrace.store.secret_tables
import headrace.store.stream_tables
import headrace.store.webhook_tables  # noqa: F401
from headrace.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
