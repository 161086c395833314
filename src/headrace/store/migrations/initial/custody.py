"""The tables of receipts, backlogs and dead letters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headrace.store.migrations.initial.columns import bigint, blob, boolean, row_number, serial, text


def create() -> None:
    """Create the tables and their indexes."""
    _create_dead_letters()
    _create_backlog()
    _create_receipts()


def _create_dead_letters() -> None:
    op.create_table(
        "dead_letters",
        *text("id", "kind", "reason", "stream"),
        *text("lane", null=True),
        *bigint("position", null=True),
        *text("raw", "triggers"),
        *bigint("attempts"),
        *text("traceback"),
        *bigint("received"),
        *text("state", default="open"),
        *bigint("acted", null=True),
        *bigint("number"),
        *text("not_copied", null=True),
        sa.PrimaryKeyConstraint("id", name="pk_dead_letters"),
    )
    op.create_index("ix_dead_letters_received", "dead_letters", ["received"])
    op.create_index("ix_dead_letters_state_acted", "dead_letters", ["state", "acted"])
    op.create_index("ix_dead_letters_stream_lane_position", "dead_letters", ["stream", "lane", "position"])
    op.create_index("ix_dead_letters_stream_number", "dead_letters", ["stream", "number"])
    op.create_table(
        "dead_letter_copies",
        *text("stream"),
        *bigint("through", "copied", "rejected"),
        sa.PrimaryKeyConstraint("stream", name="pk_dead_letter_copies"),
    )
    op.create_table(
        "dead_letter_texts",
        *text("dead_letter_id"),
        *bigint("bytes", "received"),
        *text("raw"),
        sa.PrimaryKeyConstraint("dead_letter_id", name="pk_dead_letter_texts"),
    )
    op.create_index("ix_dead_letter_texts_received", "dead_letter_texts", ["received"])
    op.create_table(
        "dead_letter_actions",
        serial("id"),
        *bigint("at"),
        *text("who", "action", "request"),
        *bigint("count"),
        sa.PrimaryKeyConstraint("id", name="pk_dead_letter_actions"),
        sqlite_autoincrement=True,
    )


def _create_backlog() -> None:
    op.create_table("spills", row_number("id"), *text("raw"), *bigint("refs", "received"), sa.PrimaryKeyConstraint("id", name="pk_spills"))
    op.create_table(
        "backlog",
        row_number("number"),
        *bigint("trigger_id", "lane_id"),
        *blob("key"),
        *bigint("position", "spill_id", null=True),
        *text("dead_letter_id", null=True),
        *boolean("accounted"),
        *text("answer", null=True),
        sa.PrimaryKeyConstraint("number", name="pk_backlog"),
    )
    op.create_index("ix_backlog_lane_id_key_trigger_id", "backlog", ["lane_id", "key", "trigger_id"], unique=True)
    op.create_index("ix_backlog_trigger_id_number", "backlog", ["trigger_id", "number"])


def _create_receipts() -> None:
    op.create_table(
        "lanes",
        serial("id"),
        *text("stream", "lane"),
        *bigint("after", "last", null=True),
        *bigint("read"),
        *bigint("moved", default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_lanes"),
        sa.UniqueConstraint("stream", "lane", name="uq_lanes_stream_lane"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_lanes_moved", "lanes", ["moved"])
    op.create_table(
        "recorded_streams",
        serial("id"),
        *text("stream"),
        *bigint("read", "lanes", "receipts", default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_recorded_streams"),
        sa.UniqueConstraint("stream", name="uq_recorded_streams_stream"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "adopted_streams",
        serial("id"),
        *bigint("stream_id", "at"),
        *text("log"),
        *bigint("receipts"),
        *bigint("missing", null=True),
        sa.PrimaryKeyConstraint("id", name="pk_adopted_streams"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_adopted_streams_stream_id", "adopted_streams", ["stream_id"])
    op.create_table(
        "stream_seeks",
        serial("id"),
        *text("plan", "stream", "state", "target", "who"),
        *bigint("planned", "expires"),
        *text("lanes"),
        sa.PrimaryKeyConstraint("id", name="pk_stream_seeks"),
        sa.UniqueConstraint("plan", "stream", name="uq_stream_seeks_plan_stream"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_stream_seeks_stream_id", "stream_seeks", ["stream", "id"])
    op.create_table(
        "subscriber_sets",
        serial("id"),
        *bigint("stream_id"),
        *blob("digest"),
        *bigint("base_id", null=True),
        *text("joined", "departed"),
        *bigint("read"),
        sa.PrimaryKeyConstraint("id", name="pk_subscriber_sets"),
        sa.UniqueConstraint("stream_id", "digest", name="uq_subscriber_sets_stream_id_digest"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "trigger_answers",
        *bigint(
            "stream_id",
            "trigger_id",
            "read",
            "fired",
            "rejected",
            "spilled",
            "dead_lettered",
            "failed",
            "settled_fired",
            "settled_filtered",
            "settled_rejected",
            "settled_dead_lettered",
            "settled_dropped",
            "redriven",
        ),
        sa.PrimaryKeyConstraint("stream_id", "trigger_id", name="pk_trigger_answers"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "receipt_problems",
        serial("id"),
        *bigint("lane_id", "at"),
        *bigint("recorded", null=True),
        *text("problem"),
        sa.PrimaryKeyConstraint("id", name="pk_receipt_problems"),
        sqlite_autoincrement=True,
    )
