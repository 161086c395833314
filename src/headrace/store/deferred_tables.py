"""The tables of deferred runs: runs that gave their place up until a trigger fires."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Table, Text

from headrace.store.tables import metadata

deferred_runs = Table(
    "deferred_runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("state", Text, nullable=False),  # scheduled | running | deferred | succeeded | failed | skipped | cancelled
    Column("attempt", BigInteger, nullable=False),
    Column("trigger_id", BigInteger),
    Column("next_method", Text),
    Column("next_kwargs", Text, nullable=False),  # JSON text; what fired is spliced into it as it came
    Column("callback", Text),
    Column("job_id", BigInteger),  # the worker that runs it now
    Column("epoch", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Column("timeout_at", BigInteger),
    Column("finished", BigInteger),
    Column("result", Text),
    Column("error", Text),
    Index(None, "state", "project"),
    Index(None, "trigger_id"),
)
