"""Fixtures of the tests on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.processes.postgres import Postgres as PostgresServer
from support.sources.postgres import OutboxTable, new_server, shared


@pytest.fixture
def table() -> Iterator[OutboxTable]:
    """Return an outbox on the shared server."""
    table = OutboxTable(shared())
    yield table
    table.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """Return a server that the tests of a module may kill."""
    server = new_server(max_slot_wal_keep_size="32MB", min_wal_size="32MB")
    yield server
    server.close()


@pytest.fixture
def own_table(own_server: PostgresServer) -> Iterator[OutboxTable]:
    """Return an outbox on the server of the module."""
    table = OutboxTable(own_server)
    yield table
    table.close()
