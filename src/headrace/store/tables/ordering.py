"""The tables of the SQL ordering store: scopes, pending events and handled events."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, LargeBinary, PrimaryKeyConstraint, Table, Text, text

from headrace.store.tables.base import Number, metadata

ordering_scopes = Table(
    "ordering_scopes",
    metadata,
    Column("id", Number, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("lookback", BigInteger, nullable=False),  # microseconds
    Column("version", BigInteger, nullable=False),  # of the ordering; each change of the waiting events increments it
    Column("clock", BigInteger, nullable=False),  # the latest wall clock time that the scope received
    Column(
        "age", BigInteger, nullable=False, server_default="0"
    ),  # the last time of its steady clock (headrace.store.ordering.steady_clock)
    Column("head", BigInteger, nullable=False),  # the last seq assigned, or read from the log
    Column("position", BigInteger, nullable=False),  # number of released events
    Column("lost", BigInteger, nullable=False),
    Column("late", BigInteger, nullable=False),
    Column("cycles", BigInteger, nullable=False),
    Column("handled", BigInteger, nullable=False),
    Column("held", BigInteger, nullable=False),  # total microseconds that released events waited
    Column("releasing", BigInteger, nullable=False, server_default="0"),  # 1: `ordering_releases` has rows of it
    Column("holds", Text, nullable=False, server_default="[]"),  # JSON: histogram of wait times, by HOLD_BUCKETS
    sqlite_autoincrement=True,
)

# Every offer and every expiry, so that another process can repeat them. Only the newest are retained.
ordering_journal = Table(
    "ordering_journal",
    metadata,
    Column("scope_id", BigInteger, primary_key=True, autoincrement=False),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("step", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# Unhandled events. `due` is the time from which the event may be claimed: null while it waits, is blocked, or is
# dead.
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
    Column("state", Text, nullable=False),  # waiting (leader missing) | blocked (leader not handled) | ready | claimed | dead
    Column("position", BigInteger),
    Column("mark", Text),
    Column("due", BigInteger),
    Column("attempts", BigInteger, nullable=False),
    Column("claim", Text),  # id of the claim
    Column("error", Text),
    Column("body", Text),  # null if the log has it
    # The scope comes last. Otherwise a database that estimates the scope as small scans all of it for one event.
    PrimaryKeyConstraint("seq", "scope_id"),
    Index(None, "key", "scope_id", unique=True),
    Index(None, "leader_key", "position", "scope_id"),
    Index(None, "scope_id", "due", "position"),
    Index(None, "scope_id", "since", sqlite_where=text("state = 'waiting'"), postgresql_where=text("state = 'waiting'")),
    sqlite_with_rowid=False,
)

# The leaders that were expired as lost and have not arrived since. The core decides which of them to delete.
ordering_given_up = Table(
    "ordering_given_up",
    metadata,
    Column("scope_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", LargeBinary, primary_key=True),
    Column("at", BigInteger, nullable=False, server_default="0"),  # when, by the steady clock of the scope; 0: unknown
    Column("number", BigInteger, nullable=False, server_default="0"),  # order of insertion
    sqlite_with_rowid=False,
)

# Work that a transaction left to later ones, by `state`. `waiting`, `blocked`: events whose followers are
# released in slices. `cycle`: the event that closed a cycle whose members are not all released. Other states are
# kinds of times (headrace.store.ordering.clock_reset) that lie ahead of a clock that was set back: up to
# `number`, they become the time `released`.
ordering_releases = Table(
    "ordering_releases",
    metadata,
    Column("scope_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", LargeBinary, primary_key=True),
    Column("state", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),  # order of the work
    Column("released", BigInteger, nullable=False),  # `blocked` followers up to this position are ready
    Column("claim", Text, nullable=False),  # the claim that took followers along with the event
    Column("members", LargeBinary),  # of a cycle: the seqs that were unreleased when it was found, 8 bytes each, little-endian
    sqlite_with_rowid=False,
)

# Handled events, in scopes that are not fed from the log. The log itself detects its duplicates.
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
"""The tables of a database that has only orderings."""
