"""The slot: who reads it, what is confirmed, and what happens when it is lost."""

from __future__ import annotations

import asyncio
import os

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.postgres.positions import parse_lsn
from headrace.testing.contract.reading import opened, reading
from headrace.triggers.stream_log import LogState, StreamLog
from support.processes.broker_server import connection_variable
from support.sources.postgres import DATABASE, OutboxTable
from support.sources.reading import cancel_reader, items_of, numbers, take_to, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("postgres")]


def stream_log(receipts: int, log: str = "log") -> StreamLog:
    async def look_up(stream: str) -> LogState:
        return LogState(log, 0)

    return StreamLog("postgres:test", LogState(log, receipts), look_up)


async def expect(table: OutboxTable, kind: type[Exception], text: str, *, receipts: int | None = None, **arguments: object) -> Exception:
    """Open the upstream, and return the error that it raises."""
    producer = table.producer(**arguments)
    if receipts is not None:
        producer.log = stream_log(receipts)
    with pytest.raises(kind, match=text) as raised:
        async with reading(producer) as stream:
            await stream.take(1)
    return raised.value


async def test_a_second_reader_is_refused_while_the_first_one_reads(table: OutboxTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.postgres.replication.SLOT_WAIT_SECONDS", 0.5)
    table.send(numbers(0, 10))
    async with reading(table.producer()) as first:
        items = await first.take(10)
        error = await expect(table, StreamError, "has another reader")
        assert "slot of its own" in (getattr(error, "hint", None) or "")
        await first.advance(items[:4])
        table.send(numbers(10, 11))
        assert [raw.value["n"] for raw, _ in await first.take(1)] == [10]


async def test_the_slot_is_confirmed_up_to_the_last_transaction_that_is_answered(table: OutboxTable) -> None:
    table.send_together(numbers(0, 3), "a")
    table.send_together(numbers(3, 6), "b")
    async with reading(table.producer(lane="lane")) as stream:
        items = await stream.take(6)
        first, second = (parse_lsn(items[number][0].headers["lsn"]) for number in (0, 3))
        await stream.advance(items[3:])
        await stream.advance(items[:2])
        assert table.confirmed() <= first
        await stream.advance(items[2:3])
        assert table.confirmed() > second
    table.send(numbers(6, 7))
    async with reading(table.producer(lane="lane")) as stream:
        assert [raw.value["n"] for raw, _ in await stream.take(1)] == [6]


async def test_a_lane_that_is_ahead_is_not_read_again_with_a_progress_table(table: OutboxTable) -> None:
    arguments = {"lane": "lane", "progress_table": f"progress_{table.name}"}
    table.send_together(numbers(0, 2), "a")
    table.send_together(numbers(2, 4), "b")
    async with reading(table.producer(**arguments)) as stream:
        items = await stream.take(4)
        await stream.producer.advance(items_of(items[:2], failed=[1]))
        await stream.advance(items[2:])
    async with reading(table.producer(**arguments)) as stream:
        table.send(numbers(4, 5), "b")
        assert [raw.value["n"] for raw, _ in await stream.take(2)] == [1, 4]


async def test_foreign_changes_move_the_slot_while_nothing_is_outstanding(table: OutboxTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.postgres.producer.STATUS_SECONDS", 0.1)
    table.execute("CREATE TABLE {} AS SELECT 1 AS n", f"foreign_{table.name}")
    async with reading(table.producer()) as stream:
        table.send(numbers(0, 1))
        sent = table.lsn()
        items = await stream.take(1)
        table.execute("INSERT INTO {} SELECT generate_series(1, 50000)", f"foreign_{table.name}")
        end = table.lsn()
        await asyncio.sleep(0.5)  # several statuses
        assert table.confirmed() < sent
        await stream.advance(items)
        await until_in_thread(lambda: table.confirmed() >= end)
        table.server.admin("CREATE DATABASE {}", f"other_{table.name}")
        end = table.lsn()
        await until_in_thread(lambda: table.confirmed() >= end)
    table.server.admin("DROP DATABASE {}", f"other_{table.name}")
    table.execute("DROP TABLE {}", f"foreign_{table.name}")


async def test_a_reader_that_takes_nothing_stays_connected(table: OutboxTable) -> None:
    """The server ends a session without a status after wal_sender_timeout."""
    table.set_connection(f"{table.server.url(DATABASE)}?options=-c%20wal_sender_timeout%3D1s")
    table.send([b'{"long":"' + b"x" * 500_000 + b'"}' for _ in range(30)])
    producer = table.producer()
    async with opened(producer) as stream:
        await anext(stream)
        await asyncio.sleep(3)  # three times the timeout
        for _ in range(29):
            await anext(stream)
        table.send(numbers(0, 1))
        assert (await anext(stream))[0].value == {"n": 0}
    await producer.aclose()


async def test_the_first_opening_creates_the_slot_and_the_publication(table: OutboxTable) -> None:
    table.drop_slot()
    table.execute("DROP PUBLICATION {}", table.slot)
    await expect(table, UpstreamError, "does not exist", receipts=0)
    producer = table.producer(create_publication=True)
    producer.log = stream_log(0)
    async with reading(producer) as stream:
        await until_in_thread(
            lambda: bool(table.execute("SELECT 1 FROM pg_replication_slots WHERE active AND slot_name = %s", values=[table.slot]))
        )
        table.send(numbers(0, 1))
        assert [raw.value["n"] for raw, _ in await stream.take(1)] == [0]


async def test_a_dropped_slot_is_a_loss_and_not_created_again(table: OutboxTable) -> None:
    table.drop_slot()
    error = await expect(table, UpstreamError, "Changes are lost: slot .* does not exist", receipts=5)
    assert "pg_create_logical_replication_slot" in (getattr(error, "hint", None) or "")
    table.create_slot()
    async with reading(table.producer()) as stream:
        table.send(numbers(0, 1))
        await stream.take(1)


async def test_a_slot_that_was_created_again_is_a_loss_with_a_progress_table(table: OutboxTable) -> None:
    progress = f"progress_{table.name}"
    table.send(numbers(0, 2))
    async with reading(table.producer(progress_table=progress)) as stream:
        await stream.advance(await stream.take(2))
    table.drop_slot()
    await expect(table, UpstreamError, "Changes are lost: slot .* does not exist", progress_table=progress)
    table.send(numbers(2, 3))
    table.create_slot()
    await expect(table, UpstreamError, "Another program has moved it or created it again", progress_table=progress)
    table.execute("DELETE FROM {}", progress)
    async with reading(table.producer(progress_table=progress)) as stream:
        table.send(numbers(3, 4))
        assert [raw.value["n"] for raw, _ in await stream.take(1)] == [3]


async def test_another_event_log_is_refused_with_a_progress_table(table: OutboxTable) -> None:
    producer = table.producer(progress_table=f"progress_{table.name}")
    producer.log = stream_log(0)
    table.send(numbers(0, 1))
    async with reading(producer) as stream:
        items = await stream.take(1)
        producer.log.stored()
        await stream.advance(items)
    again = table.producer(progress_table=f"progress_{table.name}")
    again.log = stream_log(0, log="another")
    with pytest.raises(UpstreamError, match="it has another database"):
        async with reading(again) as stream:
            await stream.take(1)
    restored = table.producer(progress_table=f"progress_{table.name}")
    restored.log = stream_log(0)
    with pytest.raises(UpstreamError, match="restored from a backup"):
        async with reading(restored) as stream:
            await stream.take(1)


async def test_slots_of_other_kinds_and_databases_are_refused(table: OutboxTable) -> None:
    table.drop_slot()
    table.execute("SELECT pg_create_physical_replication_slot(%s)", values=[table.slot])
    await expect(table, UpstreamError, "physical slot")
    table.drop_slot()
    table.create_slot()
    table.set_connection(table.server.url("postgres"))
    await expect(table, UpstreamError, "is of database 'slots'|does not exist")


async def test_missing_tables_rights_and_settings_are_named(table: OutboxTable) -> None:
    table.execute("ALTER PUBLICATION {} DROP TABLE {}", table.slot, table.name)
    table.execute("CREATE TABLE IF NOT EXISTS some_table (id int)")
    await expect(table, UpstreamError, "does not have public.")
    table.execute("ALTER PUBLICATION {} ADD TABLE {}", table.slot, table.name)
    role = f"reader_{table.name}"
    table.execute("CREATE ROLE {} LOGIN PASSWORD 'x'", role)
    url = f"postgresql://{role}:x@127.0.0.1:{table.server.port}/{DATABASE}"
    table.set_connection(url)
    error = await expect(table, UpstreamError, "may not read replication slots")
    assert f"ALTER ROLE {role} REPLICATION" in (getattr(error, "hint", None) or "")
    table.set_connection(url.replace(":x@", ":wrong@"))
    await expect(table, UpstreamError, "password authentication failed")
    table.set_connection(table.server.url("missing"))
    await expect(table, UpstreamError, "does not exist")
    table.set_connection(f"postgresql://127.0.0.1:1/{DATABASE}")
    await expect(table, StreamError, "does not answer")
    table.set_connection(f"{table.server.url(DATABASE)}?nonsense=1")
    await expect(table, (UpstreamError, StreamError), "nonsense")  # type: ignore[arg-type]
    os.environ[connection_variable(table.connection)] = table.server.url(DATABASE)
    table.execute("DROP ROLE {}", role)


async def test_a_table_that_left_the_publication_is_reported_while_it_is_read(table: OutboxTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.postgres.producer.STATUS_SECONDS", 0.1)
    producer = table.producer()
    async with reading(producer) as stream:
        table.send(numbers(0, 1))
        await stream.take(1)
        table.execute("DROP TABLE {}", table.name)
        await until_in_thread(lambda: "does not have" in producer.get_errors().get(f"public.{table.name}", ""))
        table.execute("CREATE TABLE {} (id bigserial PRIMARY KEY, lane text, body json, note text)", table.name)
        table.execute("ALTER PUBLICATION {} ADD TABLE {}", table.slot, table.name)
        await until_in_thread(lambda: not producer.get_errors())
        table.send(numbers(1, 2))
        assert [raw.value["n"] for raw, _ in await stream.take(1)] == [1]


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_a_reader_cancelled_at_any_await_leaves_the_slot_to_the_next(table: OutboxTable, steps: int) -> None:
    table.send(numbers(0, 3))
    await cancel_reader(table.producer(), steps, pause=0.001)
    table.send(numbers(3, 4))
    try:
        taken = await read_to(table, 3)
    except StreamError as error:  # psycopg cancelled twice may leave the closed socket in the event loop; a triggerer opens again
        if "connection socket closed" not in str(error):
            raise
        taken = await read_to(table, 3)
    assert taken == list(range(taken[0], 4))


async def read_to(table: OutboxTable, last: int) -> list[int]:
    """Return the numbers that a new reader gets, up to the last one."""
    async with reading(table.producer()) as reader:
        return await take_to(reader, last)
