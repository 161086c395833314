"""Every table, once. Times are microseconds since the epoch in UTC; JSON is kept as text and parsed by nobody but its owner."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, MetaData, Table, Text, UniqueConstraint

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite makes a table's row number out of an INTEGER key only; it holds 64 bits all the same.
Number = BigInteger().with_variant(Integer(), "sqlite")

meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

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
    Index(None, "state"),
)

projects = Table(
    "projects",
    metadata,
    Column("name", Text, primary_key=True),
    Column("declared", BigInteger, nullable=False),
)

triggers = Table(
    "triggers",
    metadata,
    Column("id", Number, primary_key=True),
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("classpath", Text, nullable=False),
    Column("kwargs", Text, nullable=False),
    Column("stream", Text),
    Column("queue", Text, nullable=False),
    Column("state", Text, nullable=False),  # waiting | running | failed | removed
    Column("failure", Text),
    Column("failures", BigInteger, nullable=False),
    Column("fired", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("last_fired", BigInteger),
    Column("job_id", BigInteger),
    Column("epoch", BigInteger, nullable=False),
    Column("revoked_job_id", BigInteger),
    Column("declared", BigInteger, nullable=False),
    UniqueConstraint("project", "name"),
    Index(None, "job_id"),
)

pipelines = Table(
    "pipelines",
    metadata,
    Column("id", Number, primary_key=True),
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("patterns", Text, nullable=False),
    Column("table_name", Text),
    Column("batch", Text, nullable=False),
    Column("removed", Boolean, nullable=False),
    UniqueConstraint("project", "name"),
)

events = Table(
    "events",
    metadata,
    Column("seq", Number, primary_key=True, autoincrement=False),
    Column("key", LargeBinary, nullable=False),
    Column("leader_key", LargeBinary),
    Column("leader_seq", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("subject", Text),
    Column("occurred", BigInteger, nullable=False),
    Column("received", BigInteger, nullable=False),
    Column("follows", Text),
    Column("trace", Text),
    Column("payload", Text, nullable=False),
    Column("stream", Text),
    Column("lane", Text),
    Column("position", BigInteger),
    Index(None, "key", unique=True),
)

firings = Table(
    "firings",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("trigger_id", BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("lane", Text),
    Column("position", BigInteger),
    Column("raw", Text, nullable=False),
    Column("triggers", Text, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("traceback", Text, nullable=False),
    Column("received", BigInteger, nullable=False),
    Index(None, "received"),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("pipeline", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("batch", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("finished", BigInteger),
    Column("events", BigInteger, nullable=False),
    Column("rows", BigInteger),
    Column("seqs", Text, nullable=False),
    Column("error", Text),
    Index(None, "started"),
    Index(None, "project", "pipeline"),
)

scopes = Table(
    "scopes",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("cursor", BigInteger, nullable=False),
    Column("batch", BigInteger, nullable=False),
    Column("ordered", BigInteger, nullable=False),
    Column("waiting", BigInteger, nullable=False),
    Column("lost", BigInteger, nullable=False),
    Column("late", BigInteger, nullable=False),
    Column("cycles", BigInteger, nullable=False),
    Column("updated", BigInteger, nullable=False),
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
)
