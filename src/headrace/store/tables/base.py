"""Every table, once. Times are microseconds since the epoch in UTC; JSON is kept as text and parsed by nobody but its owner."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text, UniqueConstraint, text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite makes a table's row number out of an INTEGER key only; it holds 64 bits all the same. Each table whose ids the database gives has
# `sqlite_autoincrement`: SQLite would otherwise give the highest id again once its row is deleted. PostgreSQL's sequences never go back.
Number = BigInteger().with_variant(Integer(), "sqlite")

_REVOKED = "revoked_job_id IS NOT NULL"
_KEPT = "backlog > 0"

meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# How far the wall clock and the log were at which age of the database (headrace.store.db.ages).
age_marks = Table(
    "age_marks",
    metadata,
    Column("age", BigInteger, primary_key=True, autoincrement=False),
    Column("wall", BigInteger, nullable=False),
    Column("head", BigInteger, nullable=False),
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
    Column("capacity", BigInteger),  # how many triggers a triggerer takes; unknown until it first asks for some
    Column("queues", Text, nullable=False, server_default='["default"]'),
    Column("log_url", Text),  # where its logs are served while it lives
    Column("version", Text),  # of the program that it runs
    Column("blocked", Text),  # what blocks its runner just now, as its last heartbeat said
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
    Column("restarts", BigInteger, nullable=False, server_default="0"),  # failures in a row; a long life begins them anew
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

# The keys of events that the log has forgotten: a copy is still a copy, and a leader is known to have come. Retention deletes them later.
forgotten_keys = Table(
    "forgotten_keys",
    metadata,
    Column("key", LargeBinary, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Index(None, "seq"),
    sqlite_with_rowid=False,
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
    Column("state", Text, nullable=False, server_default="open"),  # open | redriven | discarded
    Column("acted", BigInteger),
    Index(None, "received"),
    Index(None, "state", "acted"),
    Index(None, "stream", "lane", "position"),
)

# The raw events that are too long for the row of their letter: a list would have to read past them.
dead_letter_texts = Table(
    "dead_letter_texts",
    metadata,
    Column("letter_id", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("received", BigInteger, nullable=False),
    Column("raw", Text, nullable=False),
    Index(None, "received"),
)

dead_letter_actions = Table(
    "dead_letter_actions",
    metadata,
    Column("id", Number, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("action", Text, nullable=False),  # redrive | discard
    Column("asked", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

# What is kept for triggers that could not take it. One raw text serves all triggers that it is kept for, and goes with the last of them.
spills = Table(
    "spills",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    Column("raw", Text, nullable=False),
    Column("refs", BigInteger, nullable=False),
    Column("received", BigInteger, nullable=False),
)

# One row for each (trigger, raw event). A row that has an `answer` is settled and waits only for the receipt of its stretch of the lane,
# so that a redelivery is known for one; `counted` says that the receipt has come and counts it as spilled.
backlog = Table(
    "backlog",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("trigger_id", BigInteger, nullable=False),
    Column("lane_id", BigInteger, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("position", BigInteger),
    Column("spill_id", BigInteger),
    Column("letter_id", Text),
    Column("counted", Boolean, nullable=False),
    Column("answer", Text),
    Index(None, "trigger_id", "number"),
    Index(None, "lane_id", "key", "trigger_id", unique=True),
)

lanes = Table(
    "lanes",
    metadata,
    Column("id", Number, primary_key=True),
    Column("stream", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("after", BigInteger),
    Column("last", BigInteger),
    Column("read", BigInteger, nullable=False),
    Column("moved", BigInteger, nullable=False, server_default="0"),  # when it last went on, to the hour: retention forgets idle lanes
    UniqueConstraint("stream", "lane"),
    Index(None, "moved"),
    sqlite_autoincrement=True,
)

# The streams that have books. `read` and `lanes` are the sums of lanes that are forgotten.
custody_streams = Table(
    "custody_streams",
    metadata,
    Column("id", Number, primary_key=True),
    Column("stream", Text, nullable=False, unique=True),
    Column("read", BigInteger, nullable=False, server_default="0"),
    Column("lanes", BigInteger, nullable=False, server_default="0"),
    Column("receipts", BigInteger, nullable=False, server_default="0"),  # stored receipts: the upstream keeps this number too
    sqlite_autoincrement=True,
)

# Sets of triggers that owe an answer together, and how many raw events of their stream each was owed. A crew is written as the difference
# from its base (null: the empty set), so that a set of 100,000 costs as much as what changes in it. Retention merges old crews.
crews = Table(
    "crews",
    metadata,
    Column("id", Number, primary_key=True),
    Column("stream_id", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),  # see headrace.core.ledger.subscriber_sets
    Column("base_id", BigInteger),
    Column("joined", Text, nullable=False),
    Column("departed", Text, nullable=False),
    Column("read", BigInteger, nullable=False),
    UniqueConstraint("stream_id", "digest"),
    sqlite_autoincrement=True,
)

# Of each stream, the answers of those triggers that did more than filter; trigger 0 stands for all task runs that have ended. `read` is
# what a trigger was owed as a member of merged crews, beyond what their heir says.
custody = Table(
    "custody",
    metadata,
    Column("stream_id", BigInteger, primary_key=True, autoincrement=False),
    Column("trigger_id", BigInteger, primary_key=True, autoincrement=False),
    Column("read", BigInteger, nullable=False),
    Column("fired", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("spilled", BigInteger, nullable=False),
    Column("dead_lettered", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("settled_fired", BigInteger, nullable=False),
    Column("settled_filtered", BigInteger, nullable=False),
    Column("settled_rejected", BigInteger, nullable=False),
    Column("settled_dead_lettered", BigInteger, nullable=False),
    Column("settled_dropped", BigInteger, nullable=False),
    Column("redriven", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

custody_problems = Table(
    "custody_problems",
    metadata,
    Column("id", Number, primary_key=True),
    Column("lane_id", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("recorded", BigInteger),
    Column("problem", Text, nullable=False),
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
