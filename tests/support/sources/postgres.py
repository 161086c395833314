"""A table of a test on a PostgreSQL server with logical decoding, with a slot, a publication and a connection of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import Any, ClassVar

import psycopg
from psycopg import sql

from headrace.sources.postgres.positions import parse_lsn
from headrace.sources.postgres.producer import PostgresProducer
from headrace.sources.postgres.upstream import Postgres
from headrace.testing.contract.broker import Broker
from support.processes.broker_server import connection_variable
from support.processes.postgres import Postgres as PostgresServer
from support.processes.shared_servers import shared_server

DATABASE = "slots"
SETTINGS: dict[str, str | int] = {
    "wal_level": "logical",
    "max_replication_slots": 60,
    "max_wal_senders": 30,
    "synchronous_commit": "off",
    "max_wal_size": "64MB",
}

SEND_EACH = """
CREATE PROCEDURE send_each(target text, lane text, bodies text[]) LANGUAGE plpgsql AS $$
DECLARE body text;
BEGIN
  FOREACH body IN ARRAY bodies LOOP
    EXECUTE format('INSERT INTO %I (lane, body) VALUES ($1, $2::json)', target) USING lane, body;
    COMMIT;
  END LOOP;
END $$
"""


def new_server(**settings: str | int) -> PostgresServer:
    """Return a server of its own with logical decoding, and with the database of the tests."""
    server = PostgresServer(fsync=False, settings=SETTINGS | settings)
    server.admin("CREATE DATABASE {}", DATABASE)
    with psycopg.connect(server.url(DATABASE), autocommit=True) as connection:
        connection.execute(SEND_EACH)
    return server


@shared_server
def shared() -> PostgresServer:
    """Return the server that the tests of this process share."""
    return new_server()


class OutboxTable:
    """An outbox with the columns id, lane, body and note."""

    def __init__(self, server: PostgresServer, *, slot: bool = True) -> None:
        self.server = server
        self.name = f"outbox_{secrets.token_hex(4)}"
        self.slot = self.name
        self.connection = f"postgres_{secrets.token_hex(4)}"
        self.set_connection(server.url(DATABASE))
        self.execute("CREATE TABLE {} (id bigserial PRIMARY KEY, lane text, body json, note text)", self.name)
        self.execute("CREATE PUBLICATION {} FOR TABLE {}", self.slot, self.name)
        if slot:
            self.create_slot()

    def set_connection(self, url: str) -> None:
        """Set the connection of the upstream."""
        os.environ[connection_variable(self.connection)] = url

    def create_slot(self) -> None:
        """Create the slot."""
        self.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", values=[self.slot])

    def drop_slot(self) -> None:
        """Drop the slot."""
        self.execute("SELECT pg_drop_replication_slot(%s)", values=[self.slot])

    def execute(self, text: str, *names: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own, with names quoted into its `{}`, and return its rows."""
        with psycopg.connect(self.server.url(DATABASE), autocommit=True) as connection:
            cursor = connection.execute(sql.SQL(text).format(*map(sql.Identifier, names)), values)
            return cursor.fetchall() if cursor.description else []

    def transaction(self) -> psycopg.Connection[Any]:
        """Return a session whose transaction the caller commits."""
        return psycopg.connect(self.server.url(DATABASE))

    def send(self, bodies: Sequence[bytes], lane: str = "a") -> None:
        """Insert rows, each in a transaction of its own."""
        self.execute("CALL send_each(%s, %s, %s)", values=[self.name, lane, [body.decode() for body in bodies]])

    def send_together(self, bodies: Sequence[bytes], lane: str = "a") -> None:
        """Insert rows in one transaction."""
        text = "INSERT INTO {} (lane, body) SELECT %s, body::json FROM unnest(%s::text[]) AS body"
        self.execute(text, self.name, values=[lane, [body.decode() for body in bodies]])

    def upstream(self, **arguments: Any) -> Postgres:
        """Return an upstream of the outbox, by default of its column `body`."""
        defaults: dict[str, Any] = {"connection": self.connection, "slot": self.slot}
        if arguments.get("format", "outbox") == "outbox":
            defaults |= {"format": "outbox", "payload": "body"}
        return Postgres(self.name, **(defaults | arguments))

    def producer(self, **arguments: Any) -> PostgresProducer:
        """Return a new producer."""
        return self.upstream(**arguments).producer()

    def confirmed(self) -> int:
        """Return the LSN that the slot has confirmed."""
        rows = self.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", values=[self.slot])
        return parse_lsn(rows[0][0])

    def lsn(self) -> int:
        """Return the end of the log, after what the server has yet to write of asynchronous commits."""
        return parse_lsn(self.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])

    def close(self) -> None:
        """Drop all of it, and end what still reads the slot."""
        os.environ.pop(connection_variable(self.connection), None)
        self.execute("SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE slot_name = %s", values=[self.slot])
        self.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", values=[self.slot])
        self.execute("DROP PUBLICATION IF EXISTS {}", self.slot)
        self.execute("DROP TABLE IF EXISTS {}", self.name)
        self.execute("DROP TABLE IF EXISTS {}", f"progress_{self.name}")


class PostgresBroker(Broker):
    """An outbox with a lane column and a progress table. Each message is a transaction."""

    def __init__(self, server: PostgresServer) -> None:
        self._table = OutboxTable(server)

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._table.send(messages, lane)

    def upstream(self) -> Postgres:
        return self._table.upstream(lane="lane", progress_table=f"progress_{self._table.name}")

    def close(self) -> None:
        self._table.close()


class PostgresSlotBroker(PostgresBroker):
    """An outbox whose progress only the slot keeps: one lane, and no committed position until the first advance."""

    lanes: ClassVar[bool] = False
    progress: ClassVar[bool] = False

    def upstream(self) -> Postgres:
        return self._table.upstream()
