"""The tables of the SQL home of the ordering: scopes, what is not handled yet, and what was."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, LargeBinary, PrimaryKeyConstraint, Table, Text, text

from headrace.store.tables.base import Number, metadata

ordering_scopes = Table(
    "ordering_scopes",
    metadata,
    Column("id", Number, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("lookback", BigInteger, nullable=False),  # microseconds
    Column("version", BigInteger, nullable=False),  # of the ordering: each change of what waits is one more
    Column("clock", BigInteger, nullable=False),  # the latest moment of the wall clock that the scope was told
    Column(
        "age", BigInteger, nullable=False, server_default="0"
    ),  # the last moment of its steady clock (headrace.store.ordering.steady_clock)
    Column("head", BigInteger, nullable=False),  # the last seq given out, or read from the log
    Column("position", BigInteger, nullable=False),  # how many were released
    Column("lost", BigInteger, nullable=False),
    Column("late", BigInteger, nullable=False),
    Column("cycles", BigInteger, nullable=False),
    Column("handled", BigInteger, nullable=False),
    Column("held", BigInteger, nullable=False),  # microseconds that released events waited, in all
    Column("releasing", BigInteger, nullable=False, server_default="0"),  # 1: `ordering_releases` has rows of it
    Column("holds", Text, nullable=False, server_default="[]"),  # JSON: how many waited how long, by HOLD_BUCKETS
    sqlite_autoincrement=True,
)

# Every offer and every expiry, so that a process that was not there can do the same; only the newest are kept.
ordering_journal = Table(
    "ordering_journal",
    metadata,
    Column("scope_id", BigInteger, primary_key=True, autoincrement=False),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("step", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# What is not handled yet. `due` is when it may be claimed, or claimed again: none while it waits, is blocked, or is dead.
ordering_events = Table(
    "ordering_events",
    metadata,
    Column("scope_id", BigInteger, nullable=False, autoincrement=False),
    Column("seq", BigInteger, nullable=False, autoincrement=False),
    Column("key", LargeBinary, nullable=False),
    Column("leader_key", LargeBinary),
    Column("source", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("follows", Text),
    Column("occurred", BigInteger, nullable=False),
    Column("since", BigInteger, nullable=False),  # by the steady clock of the scope
    Column("late", Boolean, nullable=False),
    Column("state", Text, nullable=False),  # waiting (leader not here) | blocked (leader not handled) | ready | claimed | dead
    Column("position", BigInteger),
    Column("mark", Text),
    Column("due", BigInteger),
    Column("attempts", BigInteger, nullable=False),
    Column("claim", Text),  # who holds it
    Column("error", Text),
    Column("body", Text),  # none where the log has it
    # The scope comes last, or a database that thinks the scope small looks for one event among all of it.
    PrimaryKeyConstraint("seq", "scope_id"),
    Index(None, "key", "scope_id", unique=True),
    Index(None, "leader_key", "position", "scope_id"),
    Index(None, "scope_id", "due", "position"),
    Index(None, "scope_id", "since", sqlite_where=text("state = 'waiting'"), postgresql_where=text("state = 'waiting'")),
    sqlite_with_rowid=False,
)

# The leaders that were given up as lost and did not come since; the core says which of them are forgotten.
ordering_given_up = Table(
    "ordering_given_up",
    metadata,
    Column("scope_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", LargeBinary, primary_key=True),
    Column("at", BigInteger, nullable=False, server_default="0"),  # when, by the steady clock of the scope; 0: unknown
    Column("number", BigInteger, nullable=False, server_default="0"),  # in which order
    sqlite_with_rowid=False,
)

# What a transaction left to later ones, by `state`. Events whose followers are released in slices: those that were `waiting` for it, and
# those that it `blocked` until it was handled. The event that closed a `cycle` whose members are not all released. And kinds of moments
# (headrace.store.ordering.clock_reset) that lie ahead of a clock that was set back: up to `number`, they become the moment `released`.
ordering_releases = Table(
    "ordering_releases",
    metadata,
    Column("scope_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", LargeBinary, primary_key=True),
    Column("state", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),  # in which order
    Column("released", BigInteger, nullable=False),  # `blocked` followers up to this position are ready
    Column("claim", Text, nullable=False),  # who took followers along with the event
    Column("members", LargeBinary),  # of a cycle: the seqs that were not released when it was found, 8 bytes each, little-endian
    sqlite_with_rowid=False,
)

# What was handled, in scopes that are not fed from the log; the log itself knows its duplicates.
ordering_handled = Table(
    "ordering_handled",
    metadata,
    Column("scope_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", LargeBinary, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index(None, "scope_id", "at"),
    sqlite_with_rowid=False,
)

ORDERING_TABLES = [ordering_scopes, ordering_journal, ordering_events, ordering_given_up, ordering_releases, ordering_handled]
"""What a database needs that holds nothing but orderings."""
