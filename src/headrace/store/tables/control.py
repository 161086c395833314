"""The tables of jobs, projects, triggers and the reports of shared streams."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Index, Table, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB

from headrace.store.tables.base import Number, metadata

_REVOKED = "revoked_job_id IS NOT NULL"
_HAS_BACKLOG = "backlog > 0"

jobs = Table(
    "jobs",
    metadata,
    Column("id", Number, primary_key=True),
    Column("registration_id", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("state", Text, nullable=False),  # running | succeeded | failed | lost
    Column("desired_state", Text, nullable=False),  # run | drain | stop
    Column("reason", Text),
    Column("registered", BigInteger, nullable=False),
    Column("heartbeat", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Column("capacity", BigInteger),  # maximum number of triggers of a triggerer; null before its first request
    Column("queues", Text, nullable=False, server_default='["default"]'),
    Column("log_url", Text),  # where its logs are served while it runs
    Column("version", Text),  # of the program
    Column("blocked", Text),  # what blocks its runner, from its last heartbeat
    Column("batch", Text),  # its current batch, from its last heartbeat
    Index(None, "state"),
    sqlite_autoincrement=True,
)

projects = Table(
    "projects",
    metadata,
    Column("name", Text, primary_key=True),
    Column("declared", BigInteger, nullable=False),
    Column("declaration", Text),  # the last that was staged, once it is applied
)

# Pages of declarations that are not applied yet.
staged_triggers = Table(
    "staged_triggers",
    metadata,
    Column("declaration", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("classpath", Text, nullable=False),
    Column("kwargs", Text, nullable=False),  # encrypted
    Column("kwargs_digest", Text),
    Column("stream", Text),
    Column("queue", Text, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("max_restarts", BigInteger),
    Column("same", BigInteger),  # `declared` of the trigger that already has these arguments
    Column("staged", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

triggers = Table(
    "triggers",
    metadata,
    Column("id", Number, primary_key=True),
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("classpath", Text, nullable=False),
    Column("kwargs", Text, nullable=False),  # encrypted
    Column("kwargs_digest", Text),  # keyed digest, to detect a changed declaration
    Column("stream", Text),
    Column("queue", Text, nullable=False),
    Column("state", Text, nullable=False),  # waiting | running | failed (starts again at retry_at) | parked (does not) | removed
    Column("failure", Text),  # the last failure, retained while it runs again
    Column("failures", BigInteger, nullable=False),
    Column("fired", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("last_fired", BigInteger),
    Column("job_id", BigInteger),
    Column("epoch", BigInteger, nullable=False),
    Column("revoked_job_id", BigInteger),
    Column("declared", BigInteger, nullable=False),
    Column("backlog", BigInteger, nullable=False, server_default="0"),  # raw events in its backlog
    Column("spilled", BigInteger, nullable=False, server_default="0"),  # raw events ever spilled
    Column("priority", BigInteger, nullable=False, server_default="0"),  # higher is claimed first
    Column("restarts", BigInteger, nullable=False, server_default="0"),  # consecutive failures; reset after a long uptime
    Column("max_restarts", BigInteger),  # limit before it is parked; null: the default
    Column("retry_at", BigInteger),  # when a failed trigger may start again
    Column("started", BigInteger),  # time of its start, or of its scheduled start
    Column("removed", BigInteger),  # time since which its project no longer declares it
    Column("run_id", Text),  # the task run that waits for it; null for a declared trigger
    Column("conflicts", BigInteger, nullable=False, server_default="0"),  # events fired again under a known id with another payload
    Column("registered", BigInteger),  # time of its first declaration; null for the trigger of a task run
    UniqueConstraint("project", "name"),
    Index(None, "job_id"),
    Index(None, "run_id"),
    Index(None, "stream", "job_id"),
    # Triggers whose leases are being released or that changed while they ran, and triggers with a backlog.
    Index("ix_triggers_revoked_job_id", "revoked_job_id", "stream", sqlite_where=text(_REVOKED), postgresql_where=text(_REVOKED)),
    Index("ix_triggers_backlog", "job_id", sqlite_where=text(_HAS_BACKLOG), postgresql_where=text(_HAS_BACKLOG)),
    sqlite_autoincrement=True,
)

stream_reports = Table(
    "stream_reports",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("stream", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("read", BigInteger, nullable=False),  # also in `counters`; added up in SQL
    Column("advanced", BigInteger, nullable=False),  # likewise
    Column("outstanding", BigInteger, nullable=False),
    Column("counters", JSON().with_variant(JSONB(), "postgresql"), nullable=False),  # the StreamCounters that are not 0
    Column("report", Text, nullable=False),  # JSON of StreamReport, without its counters
    Column("updated", BigInteger, nullable=False),
)

# The newest sample of how often each field of the pattern of a watch failed.
watch_samples = Table(
    "watch_samples",
    metadata,
    Column("trigger_id", BigInteger, primary_key=True, autoincrement=False),
    Column("samples", BigInteger, nullable=False),
    Column("matched", BigInteger, nullable=False),
    Column("leaves", Text, nullable=False),  # JSON: a path and the number of its failures, for each path
    Column("updated", BigInteger, nullable=False),
)
