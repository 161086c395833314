"""The tables of jobs, projects, triggers and the reports of shared streams."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Table, Text, UniqueConstraint, text

from headrace.store.tables.base import Number, metadata

_REVOKED = "revoked_job_id IS NOT NULL"
_KEPT = "backlog > 0"

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
    Column("wanted", Text, nullable=False),  # run | drain | stop
    Column("reason", Text),
    Column("registered", BigInteger, nullable=False),
    Column("heartbeat", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Column("capacity", BigInteger),  # how many triggers a triggerer takes; unknown until it first asks for some
    Column("queues", Text, nullable=False, server_default='["default"]'),
    Column("log_url", Text),  # where its logs are served while it lives
    Column("version", Text),  # of the program that it runs
    Column("blocked", Text),  # what blocks its runner now, as its last heartbeat said
    Column("batch", Text),  # which batch it is at, as its last heartbeat said
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
    Column("kwargs", Text, nullable=False),  # sealed
    Column("kwargs_digest", Text),
    Column("stream", Text),
    Column("queue", Text, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("max_restarts", BigInteger),
    Column("same", BigInteger),  # `declared` of the trigger that has these arguments already
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
    Column("kwargs", Text, nullable=False),  # sealed
    Column("kwargs_digest", Text),  # tells, to those who have a key, whether a declaration changed them
    Column("stream", Text),
    Column("queue", Text, nullable=False),
    Column("state", Text, nullable=False),  # waiting | running | failed (starts again at retry_at) | parked (does not) | removed
    Column("failure", Text),  # the last one, also when it runs again
    Column("failures", BigInteger, nullable=False),
    Column("fired", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("last_fired", BigInteger),
    Column("job_id", BigInteger),
    Column("epoch", BigInteger, nullable=False),
    Column("revoked_job_id", BigInteger),
    Column("declared", BigInteger, nullable=False),
    Column("backlog", BigInteger, nullable=False, server_default="0"),  # how many raw events are kept for it now
    Column("spilled", BigInteger, nullable=False, server_default="0"),  # how many ever were
    Column("priority", BigInteger, nullable=False, server_default="0"),  # the higher is claimed first
    Column("restarts", BigInteger, nullable=False, server_default="0"),  # failures in a row; reset after a long uptime
    Column("max_restarts", BigInteger),  # how many before it is parked, where it says so itself
    Column("retry_at", BigInteger),  # when a failed trigger may start again
    Column("started", BigInteger),  # since when it runs, or is to run
    Column("removed", BigInteger),  # since when its project does not declare it any more
    Column("run_id", Text),  # the deferred run that waits on it; none for a trigger that a project declares
    Column("conflicts", BigInteger, nullable=False, server_default="0"),  # events it fired under an id known with another payload
    UniqueConstraint("project", "name"),
    Index(None, "job_id"),
    Index(None, "run_id"),
    Index(None, "stream", "job_id"),
    # of the few that are being given back, or that changed while they ran; and of those for which something is kept
    Index("ix_triggers_revoked_job_id", "revoked_job_id", "stream", sqlite_where=text(_REVOKED), postgresql_where=text(_REVOKED)),
    Index("ix_triggers_backlog", "job_id", sqlite_where=text(_KEPT), postgresql_where=text(_KEPT)),
    sqlite_autoincrement=True,
)

stream_reports = Table(
    "stream_reports",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("stream", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("read", BigInteger, nullable=False),
    Column("advanced", BigInteger, nullable=False),
    Column("outstanding", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("filtered", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("report", Text, nullable=False),
    Column("updated", BigInteger, nullable=False),
    Column("spilled", BigInteger, nullable=False, server_default="0"),
    Column("resolved", BigInteger, nullable=False, server_default="0"),
    Column("ack_seconds", Float, nullable=False, server_default="0"),
    Column("advances", BigInteger, nullable=False, server_default="0"),
    Column("advance_errors", BigInteger, nullable=False, server_default="0"),
    Column("advance_seconds", Float, nullable=False, server_default="0"),
)
