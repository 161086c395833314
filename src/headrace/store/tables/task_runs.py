"""The tables of task runs: runs outside of the pipelines, which may release their slot until a trigger fires."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Table, Text

from headrace.store.tables.base import Number, metadata

task_runs = Table(
    "task_runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("state", Text, nullable=False),  # scheduled | running | deferred | succeeded | failed | skipped | cancelled
    Column("attempt", BigInteger, nullable=False),  # how often a worker has begun its present step
    Column("step", BigInteger, nullable=False),  # number of its deferrals
    Column("trigger_id", BigInteger),  # the trigger that it waits for, or waited for last
    Column("next_method", Text),  # null: from its start
    Column("next_kwargs", Text, nullable=False),  # JSON text; the event is inserted unparsed
    Column("callback", Text),  # JSON: the task that starts with the outcome
    Column("job_id", BigInteger),  # the worker that runs it, or ran it last
    Column("epoch", BigInteger, nullable=False),
    Column("head", BigInteger, nullable=False),  # the head of the log when the run was created
    Column("created", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Column("timeout_at", BigInteger),  # the age of the database at its timeout (headrace.store.db.ages)
    Column("timeout_method", Text),  # the method to call on a timeout; null: the run fails
    Column("finished", BigInteger),
    Column("result", Text),
    Column("error", Text),
    Index(None, "state", "project", "task", "changed", "run_id"),
    Index(None, "changed", "run_id"),
    Index(None, "trigger_id"),
    Index(None, "timeout_at"),
    Index(None, "finished"),
)

# `number` rises with each wait and is never reused. A reader of the waits up to one number misses no later wait.
event_waits = Table(
    "event_waits",
    metadata,
    Column("number", Number, primary_key=True),
    Column("run_id", Text, nullable=False, unique=True),
    Column("project", Text, nullable=False),
    Column("event", Text, nullable=False),  # JSON: AwaitedEvent
    Column("head", BigInteger, nullable=False),  # of the run: it waits only for later events
    sqlite_autoincrement=True,
)

# The terms by which an event finds the runs that may wait for it (headrace.store.task_runs.wait_terms).
event_wait_terms = Table(
    "event_wait_terms",
    metadata,
    Column("kind", Text, primary_key=True),  # id | subject | name | type | prefix
    Column("term", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),  # of the wait
    Index(None, "number"),
    sqlite_with_rowid=False,
)

# The events that unfinished runs received. Invariant: no run receives an event twice.
run_events = Table(
    "run_events",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Index(None, "seq"),
    sqlite_with_rowid=False,
)
