"""A server that is killed, restarted or silent, and a slot that is invalidated. These tests kill a server of their own."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.testing.contract.reading import reading
from support.processes.postgres import Postgres as PostgresServer
from support.processes.proxy import Proxy
from support.sources.postgres import DATABASE, OutboxTable
from support.sources.reading import items_of, numbers, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("postgres-outages")]


@pytest.mark.parametrize("progress", [False, True])
async def test_a_server_that_is_killed_delivers_all_that_was_not_confirmed(
    own_table: OutboxTable, own_server: PostgresServer, *, progress: bool
) -> None:
    arguments = {"progress_table": f"progress_{own_table.name}"} if progress else {}
    own_table.execute("ALTER DATABASE {} SET synchronous_commit = on", DATABASE)
    own_table.send(numbers(0, 100))
    async with reading(own_table.producer(**arguments)) as stream:
        items = await stream.take(100)
        await stream.advance(items[:40])
        await asyncio.to_thread(own_server.kill)
        with pytest.raises(StreamError):
            await stream.take(1)
        with pytest.raises(StreamError):
            await stream.advance(items[40:50])
    await asyncio.to_thread(own_server.start)
    own_table.send(numbers(100, 110))
    async with reading(own_table.producer(**arguments)) as stream:
        again = await stream.take(1)
        first = again[0][0].value["n"]
        # A crash of the server may undo confirmations since the last checkpoint, but not rows of the progress table.
        assert first == 40 if progress else first <= 40
        again += await stream.take(110 - first - 1)
    assert [raw.value["n"] for raw, _ in again] == list(range(first, 110))
    positions = {raw.value["n"]: (raw.lane, raw.position) for raw, _ in items}
    assert all(positions[raw.value["n"]] == (raw.lane, raw.position) for raw, _ in again if raw.value["n"] < 100)


async def test_a_killed_session_is_an_error_and_the_next_reader_goes_on(own_table: OutboxTable) -> None:
    own_table.send(numbers(0, 5))
    async with reading(own_table.producer()) as stream:
        await stream.advance((await stream.take(5))[:2])
        own_table.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", values=[own_table.slot])
        with pytest.raises(StreamError):
            await stream.take(1)
    async with reading(own_table.producer()) as stream:
        assert [raw.value["n"] for raw, _ in await stream.take(3)] == [2, 3, 4]


async def test_an_invalidated_slot_is_a_loss(own_table: OutboxTable) -> None:
    own_table.send(numbers(0, 5))
    producer = own_table.producer()
    async with reading(producer) as stream:
        items = await stream.take(5)
        await producer.advance(items_of(items, failed=[0]))
    filler = f"filler_{own_table.name}"
    own_table.execute("CREATE TABLE {} (text text)", filler)

    def is_lost() -> bool:
        own_table.execute("INSERT INTO {} SELECT repeat('x', 1000) FROM generate_series(1, 20000)", filler)
        own_table.execute("SELECT pg_switch_wal()")
        own_table.execute("CHECKPOINT")
        rows = own_table.execute("SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s", values=[own_table.slot])
        return bool(rows[0][0] == "lost")

    await until_in_thread(is_lost)
    with pytest.raises(UpstreamError, match=r"Changes are lost: the server has invalidated slot") as raised:
        async with reading(own_table.producer()) as stream:
            await stream.take(1)
    assert "pg_create_logical_replication_slot" in (raised.value.hint or "")
    own_table.execute("DROP TABLE {}", filler)


async def test_a_silent_connection_is_found(own_table: OutboxTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that stops passing on data: no error, no end, nothing arrives."""
    monkeypatch.setattr("headrace.sources.postgres.producer.STATUS_SECONDS", 0.2)
    monkeypatch.setattr("headrace.sources.postgres.producer.STALL_SECONDS", 1.0)
    proxy = Proxy(own_table.server.port)
    own_table.set_connection(own_table.server.url(DATABASE).replace(f":{own_table.server.port}/", f":{proxy.port}/"))
    own_table.send(numbers(0, 1))
    try:
        async with reading(own_table.producer()) as stream:
            await stream.take(1)
            proxy.silence()
            with pytest.raises(StreamError, match="has sent nothing"):
                await stream.take(1)
    finally:
        proxy.close()


async def test_a_server_without_logical_decoding_is_named(own_table: OutboxTable, own_server: PostgresServer) -> None:
    own_table.drop_slot()
    own_server.stop()
    own_server._settings["wal_level"] = "replica"
    try:
        own_server.start()
        with pytest.raises(UpstreamError, match="wal_level = 'replica'") as raised:
            async with reading(own_table.producer()) as stream:
                await stream.take(1)
        assert "ALTER SYSTEM" in (raised.value.hint or "")
    finally:
        own_server.stop()
        own_server._settings["wal_level"] = "logical"
        own_server.start()
