"""The tables of pipelines: declarations, scopes, plans, runs, redeliveries and dead letters."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, LargeBinary, Table, Text, UniqueConstraint, text

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
    Column("interval_node", BigInteger),  # interval tree node of first to last seq, for the lookup of an event's runs
    Column("incarnation", Text, nullable=False, server_default=""),  # of the scope
    Index(None, "started"),
    Index(None, "project", "pipeline"),
    Index(None, "interval_node"),
    Index("ix_runs_running", "scope", sqlite_where=text("state = 'running'"), postgresql_where=text("state = 'running'")),
)

# Sums of all runs of each pipeline, including the runs that retention has deleted. They change with every report.
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
    Column("low_watermark", BigInteger, nullable=False, server_default="0"),  # the scope may read events after this `seq` again
    Column("last_redelivery_id", BigInteger, nullable=False, server_default="0"),  # the last redelivery that it read
    Column("report", Text, nullable=False, server_default="{}"),  # its last report, as JSON
    Column("job_id", BigInteger),  # the job that sent the report
    Column("incarnation", Text, nullable=False, server_default=""),  # changes each time the scope is created or reset
    Column("begin_seq", BigInteger, nullable=False, server_default="0"),  # the scope began after this `seq`
    Column("begin_redelivery_id", BigInteger, nullable=False, server_default="0"),  # the last redelivery when it began
    Column("epoch", BigInteger, nullable=False, server_default="0"),  # of the lease of its last stored plan; 0 if it has no plan
)

# Redeliveries, in the order of `id`: a trigger that fired on an event after it was stored, or an event of a
# redriven dead letter of a pipeline. A scope reads them beside the log, so that neither changes an event that it
# has read.
redeliveries = Table(
    "redeliveries",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("trigger_id", BigInteger),
    Column("dead_letter_id", Text),
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
    Column("state", Text, nullable=False),  # open | redriven | discarded; deleted when its redrive succeeds
    Column("received", BigInteger, nullable=False),
    Column("acted", BigInteger),
    Column("slice", LargeBinary),  # the run's events in order, with positions and marks, packed by the driver
    Index(None, "received"),
    Index(None, "state", "acted"),
)

# The job that holds each scope. The epoch counts the jobs that have held it.
scope_leases = Table(
    "scope_leases",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("job_id", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("granted", BigInteger, nullable=False),
)

# The ledger of a scope: its rows belong to an incarnation of the scope. A reset or removed scope has none of
# them.

# Runs of plans without an outcome.
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
    Column("dead_letter_id", Text),  # the dead letter that the run redrives
    Column("events", BigInteger, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("slice", BigInteger, nullable=False),
    Column("begun", BigInteger, nullable=False),  # the last attempt that began
    Column("ended", BigInteger, nullable=False),  # the last attempt that ended
    Index(None, "incarnation", "first_seq"),
    Index(None, "incarnation", "batch", "slice"),
    sqlite_with_rowid=False,
)

# The events of planned runs, as written by the driver. A slice is deleted with the last of its runs.
plan_slices = Table(
    "plan_slices",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)

# The positions of the events that a scope has ordered, as written by the driver. A block is retained while the
# log has one of its events.
event_positions = Table(
    "event_positions",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("first_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

# The state of a scope's ordering, as written by the driver.
scope_state = Table(
    "scope_state",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
