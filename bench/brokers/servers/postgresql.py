"""PostgreSQL: an outbox table, read through a logical replication slot."""

from __future__ import annotations

import select
import struct
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import psycopg
from bench.brokers.broker import Advanced, Broker, Send, chunks, value
from psycopg import sql

from headrace import Postgres

FILL: Final = """
CREATE PROCEDURE fill(target text, bodies text[], INOUT ends bigint[]) LANGUAGE plpgsql AS $$
DECLARE body text;
BEGIN
  ends := '{}';
  FOREACH body IN ARRAY bodies LOOP
    EXECUTE format('INSERT INTO %I (body) VALUES ($1::json)', target) USING body;
    COMMIT;
    ends := ends || (pg_current_wal_insert_lsn() - '0/0')::bigint;
  END LOOP;
END $$
"""
"""Insert rows, each in a transaction of its own, and return the LSN after each."""
CONFIRMED: Final = "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = %s"
FRAME: Final = struct.Struct(">cQQQ")
COMMIT: Final = struct.Struct(">BQQ")
STATUS: Final = struct.Struct(">cQQQQB")
MICROSECONDS_TO_2000: Final = 946_684_800_000_000


class Server(Broker):
    """A server with logical decoding. A row is a transaction, unless the sender is late: then it inserts what is due in one."""

    server = "postgresql"
    source = "an outbox table, read through a logical slot without a progress table, one row per transaction"
    count = "confirmed LSN of the slot"
    messages: ClassVar[int] = 200_000

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._ends: dict[str, list[int]] = {}
        with psycopg.connect(self.connection, autocommit=True) as connection:
            connection.execute(FILL)

    @property
    def connection(self) -> str:
        return _url(self.address)

    def upstream(self, name: str) -> Postgres:
        return Postgres(name, connection="bench", slot=name, format="outbox", payload="body")

    def create(self, name: str) -> None:
        with psycopg.connect(self.connection, autocommit=True) as connection:
            # A vacuum would write to the log between two messages.
            text = "CREATE TABLE {} (id bigserial PRIMARY KEY, body json) WITH (autovacuum_enabled = off)"
            connection.execute(sql.SQL(text).format(sql.Identifier(name)))
            connection.execute(sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(*[sql.Identifier(name)] * 2))
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        self._ends[name] = []

    def drop(self, name: str) -> None:
        with psycopg.connect(self.connection, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE slot_name = %s", [name])
            connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
            connection.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(name)))
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))

    def fill(self, name: str, messages: int) -> None:
        with psycopg.connect(self.connection, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            for numbers in chunks(messages, 2_000):
                row: Any = connection.execute("CALL fill(%s, %s, NULL)", [name, [value(number).decode() for number in numbers]]).fetchone()
                self._ends[name] += row[0]

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        text = sql.SQL("INSERT INTO {} (body) SELECT unnest(%s::text[])::json").format(sql.Identifier(name))
        with psycopg.connect(self.connection, autocommit=True) as connection:

            def send(numbers: Sequence[int]) -> None:
                connection.execute(text, [[value(number).decode() for number in numbers]])
                row: Any = connection.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchone()
                self._ends[name] += [row[0]] * len(numbers)

            yield send

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        with psycopg.connect(self.connection, autocommit=True) as connection:

            def advanced() -> list[int]:
                # Read first: a message that is confirmed before its end is known counts at the next look.
                row: Any = connection.execute(CONFIRMED, [name]).fetchone()
                return [bisect_right(self._ends[name], int(row[0]))]

            yield advanced

    @staticmethod
    def read(address: str, name: str) -> None:
        parameters: dict[str, Any] = {"replication": "database", "autocommit": True}
        with psycopg.connect(_url(address), **parameters) as connection:
            text = "START_REPLICATION SLOT {} LOGICAL 0/0 (proto_version '1', publication_names {})"
            connection.execute(sql.SQL(text).format(sql.Identifier(name), sql.Literal(name)))
            _stream(connection.pgconn)


def _stream(pgconn: Any) -> None:
    """Read all frames that have arrived, then confirm the last commit among them."""
    received = confirmed = 0
    while True:
        last, reply = confirmed, False
        while (answer := pgconn.get_copy_data(1))[0] > 0:
            frame = bytes(answer[1])
            kind, start, _, _ = FRAME.unpack_from(frame) if frame[:1] == b"w" else (b"k", *struct.unpack_from(">QQ", frame, 1), 0)
            received = max(received, start)
            if kind == b"w" and frame[FRAME.size : FRAME.size + 1] == b"C":
                last = COMMIT.unpack_from(frame, FRAME.size + 1)[2]
                received = max(received, last)
            reply = reply or (kind == b"k" and bool(frame[-1]))
        if answer[0] < 0:
            return
        if last > confirmed or reply:
            confirmed = last
            pgconn.put_copy_data(STATUS.pack(b"r", received, confirmed, confirmed, time.time_ns() // 1_000 - MICROSECONDS_TO_2000, 0))
            pgconn.flush()
        select.select([pgconn.socket], [], [])
        pgconn.consume_input()


def _url(address: str) -> str:
    return f"postgresql://postgres@{address}/postgres"
