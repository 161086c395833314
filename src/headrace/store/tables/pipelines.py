"""The tables of pipelines: declarations, scopes, plans, runs, redeliveries and dead letters."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, LargeBinary, Table, Text, UniqueConstraint

from headrace.store.tables.base import Number, metadata

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
    Column("on_failure", Text, nullable=False, server_default="release"),
    UniqueConstraint("project", "name"),
    sqlite_autoincrement=True,
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
    Column("first_seq", BigInteger),
    Column("last_seq", BigInteger),
    Column("node", BigInteger),  # of the stretch from the first to the last, by which the runs of an event are found
    Column("incarnation", Text, nullable=False, server_default=""),  # of the scope
    Index(None, "started"),
    Index(None, "project", "pipeline"),
    Index(None, "node"),
)

# Sums of all runs of each pipeline, also of those that retention has deleted. They change with every report.
run_totals = Table(
    "run_totals",
    metadata,
    Column("project", Text, primary_key=True),
    Column("pipeline", Text, primary_key=True),
    Column("runs", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
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
    Column("kept", BigInteger, nullable=False, server_default="0"),  # what it may still read again comes after this `seq`
    Column("again", BigInteger, nullable=False, server_default="0"),  # the last redelivery that it read
    Column("report", Text, nullable=False, server_default="{}"),  # what it last told of itself, as JSON
    Column("job_id", BigInteger),  # who told it
    Column("incarnation", Text, nullable=False, server_default=""),  # another one for each time that the scope is created or reset
    Column("begin_seq", BigInteger, nullable=False, server_default="0"),  # the scope began after this `seq`
    Column("begin_again", BigInteger, nullable=False, server_default="0"),  # the last redelivery when it began
    Column("epoch", BigInteger, nullable=False, server_default="0"),  # of the lease under which its last plan was stored; 0: it has none
)

# What the log says once more, in the order of `id`: a trigger that fired on an event only after it was stored, or an event of a
# pipeline's dead letter that is tried again. A scope reads them beside the log, so that neither changes what it has read already.
redeliveries = Table(
    "redeliveries",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("trigger_id", BigInteger),
    Column("letter_id", Text),
    Index(None, "seq"),
)

pipeline_dead_letters = Table(
    "pipeline_dead_letters",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("pipeline", Text, nullable=False),
    Column("run_id", Text, nullable=False),  # the last of its attempts
    Column("batch", BigInteger, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("seqs", Text, nullable=False),  # closed ranges, as JSON
    Column("error", Text, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("state", Text, nullable=False),  # open | redriven | discarded; it goes when its redrive succeeds
    Column("received", BigInteger, nullable=False),
    Column("acted", BigInteger),
    Column("slice", LargeBinary),  # the run's events in their order, with positions and marks, as the driver packed them
    Index(None, "received"),
    Index(None, "state", "acted"),
)

# The job that holds each scope. The epoch counts the jobs that ever held it.
scope_leases = Table(
    "scope_leases",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("job_id", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("granted", BigInteger, nullable=False),
)

# The ledger of a scope: its rows belong to an incarnation of the scope, so a scope that is reset or removed has none of them from then on.

# Runs of plans that have no outcome yet.
planned_runs = Table(
    "planned_runs",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("pipeline", Text, nullable=False),
    Column("part", Text, nullable=False),
    Column("table_name", Text),
    Column("format", Text),
    Column("letter", Text),  # the dead letter that the run tries again
    Column("events", BigInteger, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("slice", BigInteger, nullable=False),
    Column("begun", BigInteger, nullable=False),  # the last attempt that began
    Column("ended", BigInteger, nullable=False),  # the last attempt that ended
    Index(None, "incarnation", "first_seq"),
    Index(None, "incarnation", "batch", "slice"),
    sqlite_with_rowid=False,
)

# The events of planned runs, as the driver wrote them. A slice goes with the last of its runs.
plan_slices = Table(
    "plan_slices",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)

# The positions of the events that a scope has ordered, as the driver wrote them. A block stays as long as the log has one of its events.
event_positions = Table(
    "event_positions",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("first_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

# What a scope's ordering holds, as the driver wrote it.
scope_state = Table(
    "scope_state",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
