"""Custody is kept by stream: finished lanes and sets of triggers that are no more can be forgotten."""

from __future__ import annotations

import json
from collections import defaultdict
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "r0014"
down_revision = "r0013"
branch_labels = None
depends_on = None

LOSES = "which lane each trigger's answers were of: their sums go to one lane of the stream; and what was dropped from backlogs"

ANSWERS = ("fired", "rejected", "spilled", "dead_lettered", "failed")
SETTLED = ("settled_fired", "settled_filtered", "settled_rejected", "settled_dead_lettered")
COUNTS = (*ANSWERS, *SETTLED, "redriven")
SUMS = ", ".join(f"SUM(c.{name})" for name in COUNTS)
NAMES = ", ".join(COUNTS)


def upgrade() -> None:
    """Sum the books of lanes up by stream, and write sets of triggers as differences from the empty set."""
    op.add_column("lanes", sa.Column("moved", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("ix_lanes_moved", "lanes", ["moved"])
    op.create_index("ix_triggers_stream_job_id", "triggers", ["stream", "job_id"])
    op.add_column("triggers", sa.Column("removed", sa.BigInteger()))
    op.get_bind().execute(sa.text("UPDATE triggers SET removed = :now WHERE state = 'removed'"), {"now": _now()})
    op.add_column("projects", sa.Column("declaration", sa.Text()))
    op.create_table(
        "staged_triggers",
        sa.Column("declaration", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("classpath", sa.Text(), nullable=False),
        sa.Column("kwargs", sa.Text(), nullable=False),
        sa.Column("kwargs_digest", sa.Text()),
        sa.Column("stream", sa.Text()),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("max_restarts", sa.BigInteger()),
        sa.Column("same", sa.BigInteger()),
        sa.Column("staged", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("declaration", "name", name="pk_staged_triggers"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "custody_streams",
        sa.Column("id", _number(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("read", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("lanes", sa.BigInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_custody_streams"),
        sa.UniqueConstraint("stream", name="uq_custody_streams_stream"),
    )
    op.execute("INSERT INTO custody_streams (stream) SELECT DISTINCT stream FROM lanes ORDER BY stream")
    # since when a lane is idle is not known: from now on
    op.get_bind().execute(sa.text("UPDATE lanes SET moved = :now"), {"now": _now()})
    reads = _read_by_crew()
    op.drop_table("crew_reads")
    op.drop_table("crews")
    op.rename_table("custody", "lane_custody")
    _create_crews()
    _create_custody(*(("stream_id", "trigger_id"), ("read", *ANSWERS, *SETTLED, "settled_dropped", "redriven")))
    op.execute(
        f"INSERT INTO custody (stream_id, trigger_id, read, settled_dropped, {NAMES})"  # noqa: S608
        f" SELECT s.id, c.trigger_id, 0, 0, {SUMS} FROM lane_custody c JOIN lanes l ON l.id = c.lane_id"
        " JOIN custody_streams s ON s.stream = l.stream GROUP BY s.id, c.trigger_id"
    )
    op.drop_table("lane_custody")
    _insert_crews(reads)


def downgrade() -> None:
    """Give the sums to the first lane of each stream."""
    connection = op.get_bind()
    first = "SELECT MIN(l.id) FROM lanes l JOIN custody_streams s ON s.stream = l.stream WHERE s.id = %s.stream_id"
    members: dict[int, set[int]] = {}
    old: list[dict[str, Any]] = []
    lane = first % "k"
    for row in connection.execute(sa.text(f"SELECT k.*, ({lane}) AS lane_id FROM crews k ORDER BY k.id")).all():  # noqa: S608
        members[row.id] = (members.get(row.base_id, set()) - set(json.loads(row.departed))) | set(json.loads(row.joined))
        if row.read and row.lane_id is not None:
            old.append({"triggers": json.dumps(sorted(members[row.id]), separators=(",", ":")), "lane": row.lane_id, "read": row.read})
    op.drop_table("crews")
    op.rename_table("custody", "stream_custody")
    _create_custody(*(("lane_id", "trigger_id"), COUNTS))
    lane = first % "c"
    op.execute(
        f"INSERT INTO custody (lane_id, trigger_id, {NAMES}) SELECT ({lane}), c.trigger_id, {NAMES.replace('settled', 'c.settled')}"  # noqa: S608
        f" FROM stream_custody c WHERE ({lane}) IS NOT NULL AND c.trigger_id > 0"
    )
    op.drop_table("stream_custody")
    op.create_table(
        "crews",
        sa.Column("id", _number(), nullable=False),
        sa.Column("triggers", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_crews"),
        sa.UniqueConstraint("digest", name="uq_crews_digest"),
    )
    op.create_table(
        "crew_reads",
        sa.Column("lane_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("crew_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("read", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("lane_id", "crew_id", name="pk_crew_reads"),
        sqlite_with_rowid=False,
    )
    _insert_old_crews(old)
    op.drop_table("custody_streams")
    op.drop_table("staged_triggers")
    op.drop_column("projects", "declaration")
    op.drop_column("triggers", "removed")
    op.drop_index("ix_triggers_stream_job_id", "triggers")
    op.drop_index("ix_lanes_moved", "lanes")
    op.drop_column("lanes", "moved")


def _number() -> Any:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _now() -> int:
    from time import time

    return int(time() * 1_000_000)


def _create_crews() -> None:
    op.create_table(
        "crews",
        sa.Column("id", _number(), nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("base_id", sa.BigInteger()),
        sa.Column("joined", sa.Text(), nullable=False),
        sa.Column("departed", sa.Text(), nullable=False),
        sa.Column("read", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_crews"),
        sa.UniqueConstraint("stream_id", "digest", name="uq_crews_stream_id_digest"),
    )


def _create_custody(key: tuple[str, ...], counts: tuple[str, ...]) -> None:
    if op.get_bind().dialect.name == "postgresql":  # the index of the renamed table has the name of the new one's
        old = "stream_custody" if "lane_id" in key else "lane_custody"
        op.execute(f"ALTER INDEX pk_custody RENAME TO pk_{old}")
    op.create_table(
        "custody",
        *(sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False) for name in key),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in counts),
        sa.PrimaryKeyConstraint(*key, name="pk_custody"),
        sqlite_with_rowid=False,
    )


def _read_by_crew() -> dict[tuple[int, tuple[int, ...]], int]:
    """Return how many raw events of each stream each set of triggers was owed."""
    query = (
        "SELECT s.id AS stream_id, k.triggers, SUM(r.read) AS read FROM crew_reads r JOIN crews k ON k.id = r.crew_id"
        " JOIN lanes l ON l.id = r.lane_id JOIN custody_streams s ON s.stream = l.stream GROUP BY s.id, k.id, k.triggers"
    )
    reads: dict[tuple[int, tuple[int, ...]], int] = defaultdict(int)
    for row in op.get_bind().execute(sa.text(query)):
        reads[row.stream_id, tuple(json.loads(row.triggers))] += int(row.read)
    return reads


def _insert_crews(reads: dict[tuple[int, tuple[int, ...]], int]) -> None:
    columns = "stream_id, digest, joined, departed, read"
    statement = sa.text(f"INSERT INTO crews ({columns}) VALUES (:stream, :digest, :joined, '[]', :read)")  # noqa: S608
    for (stream, triggers), read in reads.items():
        joined = json.dumps(triggers, separators=(",", ":"))
        op.get_bind().execute(statement, {"stream": stream, "digest": _digest(triggers), "joined": joined, "read": read})


def _insert_old_crews(old: list[dict[str, Any]]) -> None:
    connection = op.get_bind()
    known: dict[str, int] = {}
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for one in old:
        if one["triggers"] not in known:
            known[one["triggers"]] = len(known) + 1
            digest = blake2b(one["triggers"].encode(), digest_size=16).digest()
            connection.execute(sa.text("INSERT INTO crews (triggers, digest) VALUES (:t, :d)"), {"t": one["triggers"], "d": digest})
        sums[one["lane"], known[one["triggers"]]] += one["read"]
    for (lane, crew), read in sums.items():
        connection.execute(sa.text("INSERT INTO crew_reads VALUES (:lane, :crew, :read)"), {"lane": lane, "crew": crew, "read": read})


def _digest(triggers: tuple[int, ...]) -> bytes:
    hashes = (blake2b(one.to_bytes(8, "big", signed=True), digest_size=16).digest() for one in triggers)
    return (sum(int.from_bytes(one, "big") for one in hashes) % (1 << 128)).to_bytes(16, "big")
