"""The tables of receipts, backlogs and dead letters of triggers."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, LargeBinary, Table, Text, UniqueConstraint

from headrace.store.tables.base import Number, metadata

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
    Column("number", BigInteger, nullable=False),  # rises with each insertion and each reopening, in the order of commits
    Column("not_copied", Text),  # why the broker rejected the copy
    Index(None, "received"),
    Index(None, "state", "acted"),
    Index(None, "stream", "lane", "position"),
    Index(None, "stream", "number"),
)

# The streams whose dead letters are copied to the broker. Each dead letter up to the number `through` is copied, or
# marked as not copied, or was not open any more.
dead_letter_copies = Table(
    "dead_letter_copies",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("through", BigInteger, nullable=False),
    Column("copied", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
)

# Raw events that are too long for the row of their dead letter. A list of dead letters does not read them.
dead_letter_texts = Table(
    "dead_letter_texts",
    metadata,
    Column("dead_letter_id", Text, primary_key=True),
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
    Column("request", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

# Spilled raw events. One raw text serves all triggers whose backlog has it, and is deleted with the last of them.
spills = Table(
    "spills",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    Column("raw", Text, nullable=False),
    Column("refs", BigInteger, nullable=False),
    Column("received", BigInteger, nullable=False),
)

# One row for each (trigger, raw event). A row with an `answer` is settled, and waits only for the receipt of its
# range of the lane, so that a redelivery is detected. `accounted` says that the receipt is stored and counts
# the raw event as spilled.
backlog = Table(
    "backlog",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("trigger_id", BigInteger, nullable=False),
    Column("lane_id", BigInteger, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("position", BigInteger),
    Column("spill_id", BigInteger),
    Column("dead_letter_id", Text),
    Column("accounted", Boolean, nullable=False),
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
    Column("moved", BigInteger, nullable=False, server_default="0"),  # last advance, rounded to the hour: retention deletes idle lanes
    UniqueConstraint("stream", "lane"),
    Index(None, "moved"),
    sqlite_autoincrement=True,
)

# The streams that have receipts. `read` and `lanes` are the sums of deleted lanes.
recorded_streams = Table(
    "recorded_streams",
    metadata,
    Column("id", Number, primary_key=True),
    Column("stream", Text, nullable=False, unique=True),
    Column("read", BigInteger, nullable=False, server_default="0"),
    Column("lanes", BigInteger, nullable=False, server_default="0"),
    Column("receipts", BigInteger, nullable=False, server_default="0"),  # stored receipts: the upstream's mark has this number too
    sqlite_autoincrement=True,
)

# Sets of triggers that owe an answer together, and how many raw events of their stream each was owed. A
# subscriber set is stored as the difference from its base (null: the empty set), so that a set of 100,000 costs
# as much as its changes. Retention merges old subscriber sets.
subscriber_sets = Table(
    "subscriber_sets",
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

# For each stream, the answers of the triggers that did more than filter. Trigger 0 stands for all ended task
# runs. `read` is the number of raw events owed to a trigger as a member of merged subscriber sets, beyond the
# merged set's own.
trigger_answers = Table(
    "trigger_answers",
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

receipt_problems = Table(
    "receipt_problems",
    metadata,
    Column("id", Number, primary_key=True),
    Column("lane_id", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("recorded", BigInteger),
    Column("problem", Text, nullable=False),
    sqlite_autoincrement=True,
)

# Streams whose upstreams were advanced for another log, or past a restored database, and that an operator
# adopted.
adopted_streams = Table(
    "adopted_streams",
    metadata,
    Column("id", Number, primary_key=True),
    Column("stream_id", BigInteger, nullable=False, index=True),
    Column("at", BigInteger, nullable=False),
    Column("log", Text, nullable=False),
    Column("receipts", BigInteger, nullable=False),  # of the upstream's mark
    Column("missing", BigInteger),  # receipts that the restored database does not have; null: another log has them
    sqlite_autoincrement=True,
)

# Seeks of operators: the lanes of one stream that move to another position, as JSON of `SeekLane`. All streams of a
# plan are planned in one transaction.
stream_seeks = Table(
    "stream_seeks",
    metadata,
    Column("id", Number, primary_key=True),
    Column("plan", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("state", Text, nullable=False),  # planned | done | replaced
    Column("target", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("planned", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("lanes", Text, nullable=False),
    UniqueConstraint("plan", "stream"),
    Index(None, "stream", "id"),
    sqlite_autoincrement=True,
)
