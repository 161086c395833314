"""Raw events of changes: their JSON, keys, headers, types and order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.errors import MalformedEvent
from headrace.sources.postgres.upstream import Postgres
from headrace.testing.contract.reading import reading
from support.sources.postgres import OutboxTable
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("postgres")]


async def take(table: OutboxTable, count: int, **arguments: Any) -> list[Any]:
    async with reading(table.producer(**arguments)) as stream:
        return [raw for raw, _ in await stream.take(count)]


async def test_changes_have_key_before_after_and_metadata(table: OutboxTable) -> None:
    table.execute("INSERT INTO {} (id, lane) VALUES (7, 'eu')", table.name)
    table.execute("UPDATE {} SET note = 'new' WHERE id = 7", table.name)
    table.execute("UPDATE {} SET id = 8 WHERE id = 7", table.name)
    table.execute("DELETE FROM {} WHERE id = 8", table.name)
    table.execute("TRUNCATE {} RESTART IDENTITY", table.name)
    raws = await take(table, 5, format="changes")
    name = f"public.{table.name}"
    values = [raw.value for raw in raws]
    assert [(one["op"], one["table"], one["key"]) for one in values] == [
        ("insert", name, {"id": 7}),
        ("update", name, {"id": 7}),
        ("update", name, {"id": 8}),
        ("delete", name, {"id": 8}),
        ("truncate", name, None),
    ]
    assert values[0]["after"] == {"id": 7, "lane": "eu", "body": None, "note": None}
    assert [one["before"] for one in values] == [None, None, {"id": 7}, {"id": 8}, None]
    assert (values[4]["restart_identity"], values[4]["cascade"]) == (True, False)
    assert [raw.key for raw in raws] == ["7", "7", "8", "8", None]
    assert (raws[0].headers["table"], raws[0].headers["op"]) == (name, "insert")
    assert raws[0].headers["lsn"] == values[0]["lsn"]
    assert abs(raws[0].timestamp - datetime.now(UTC)) < timedelta(minutes=5)
    assert datetime.fromisoformat(values[0]["committed"]).tzinfo is not None


async def test_an_unchanged_large_value_is_named_and_never_null(table: OutboxTable) -> None:
    table.execute("ALTER TABLE {} ALTER note SET STORAGE EXTERNAL", table.name)
    table.execute("INSERT INTO {} (id, note) VALUES (1, repeat('x', 10000))", table.name)
    table.execute("UPDATE {} SET lane = 'b'", table.name)
    values = [raw.value for raw in await take(table, 2, format="changes")]
    assert values[1]["after"] == {"id": 1, "lane": "b", "body": None}
    assert values[1]["unchanged"] == ["note"]
    (_, debezium) = [raw.value for raw in await take(table, 2, format="debezium")]
    assert debezium["after"]["note"] == "__debezium_unavailable_value"
    table.execute("ALTER TABLE {} REPLICA IDENTITY FULL", table.name)
    table.execute("UPDATE {} SET lane = 'c'", table.name)
    value = (await take(table, 3, format="changes"))[2].value
    assert (value["after"]["note"], value["before"]["lane"], value["key"]) == ("x" * 10_000, "b", None)
    assert "unchanged" not in value


async def test_debezium_envelopes(table: OutboxTable) -> None:
    table.execute("INSERT INTO {} (id, lane) VALUES (7, 'eu')", table.name)
    table.execute("DELETE FROM {}", table.name)
    table.execute("TRUNCATE {}", table.name)
    raws = await take(table, 3, format="debezium")
    created, deleted, truncated = (raw.value for raw in raws)
    assert [one["op"] for one in (created, deleted, truncated)] == ["c", "d", "t"]
    assert (created["before"], created["after"]["lane"], deleted["after"], deleted["before"]) == (None, "eu", None, {"id": 7})
    source = created["source"]
    assert (source["connector"], source["db"], source["schema"], source["table"]) == ("postgresql", "slots", "public", table.name)
    assert [raw.key for raw in raws] == ['{"id":7}', '{"id":7}', None]


async def test_the_outbox_passes_on_inserted_rows_only(table: OutboxTable) -> None:
    table.send(numbers(0, 1), "eu")
    table.execute("UPDATE {} SET note = 'x'", table.name)
    table.execute("DELETE FROM {}", table.name)
    table.execute("TRUNCATE {}", table.name)
    table.execute("INSERT INTO {} (id, lane, body) VALUES (9, NULL, NULL)", table.name)
    raws = await take(table, 2, key="id", lane="lane")
    assert [(raw.data, raw.key, raw.lane.partition("@")[0]) for raw in raws] == [(b'{"n":0}', "1", "eu"), (b"null", "9", table.slot)]
    rows = await take(table, 2, payload=None)
    assert rows[1].value == {"id": 9, "lane": None, "body": None, "note": None}


async def test_types_of_all_kinds(table: OutboxTable) -> None:
    table.execute("DROP TYPE IF EXISTS mood")
    table.execute("CREATE TYPE mood AS ENUM ('happy')")
    table.execute(
        """ALTER TABLE {} ADD n numeric, ADD f float8, ADD b bool, ADD j jsonb, ADD y bytea, ADD t timestamptz, ADD d date,
        ADD i int[], ADD s text[], ADD m mood, ADD v interval, ADD u uuid""",
        table.name,
    )
    table.execute(
        """INSERT INTO {} (note, n, f, b, j, y, t, d, i, s, m, v, u) VALUES (E'\\u0001"😀\\\\', 1.10, 0.1, true, '{{"a": 1e2}}', '\\x00ff',
        '2026-11-23 13:00:00.25+01', '2026-11-23', '{{1,2}}', '{{a,"b c"}}', 'happy', '1 day 2 hours',
        '00000000-0000-0000-0000-000000000001')""",
        table.name,
    )
    value = (await take(table, 1, format="changes"))[0].value["after"]
    assert {name: value[name] for name in "nfbjytdismvu"} == {
        "n": "1.10",
        "f": 0.1,
        "b": True,
        "j": {"a": 100},
        "y": "AP8=",
        "t": "2026-11-23T12:00:00.25Z",
        "d": "2026-11-23",
        "i": [1, 2],
        "s": '{a,"b c"}',
        "m": "happy",
        "v": "P1DT2H",
        "u": "00000000-0000-0000-0000-000000000001",
    }
    assert value["note"] == '\x01"😀\\'


async def test_a_table_that_changes_while_it_is_read(table: OutboxTable) -> None:
    async with reading(table.producer(payload=None)) as stream:
        table.send(numbers(0, 1))
        table.execute("ALTER TABLE {} RENAME note TO remark", table.name)
        table.execute("ALTER TABLE {} ADD extra int DEFAULT 5", table.name)
        table.send(numbers(1, 2))
        first, second = [raw.value for raw, _ in await stream.take(2)]
    assert set(first) == {"id", "lane", "body", "note"}
    assert second == {"id": 2, "lane": "a", "body": {"n": 1}, "remark": None, "extra": 5}


async def test_rows_without_the_declared_column_become_text_that_is_no_json(table: OutboxTable) -> None:
    producer = table.producer(payload="body")
    async with reading(producer) as stream:
        table.execute("ALTER TABLE {} RENAME body TO content", table.name)
        table.execute("INSERT INTO {} (content) VALUES ('[1]')", table.name)
        ((raw, _),) = await stream.take(1)
        with pytest.raises(MalformedEvent):
            _ = raw.value
        assert b'"content":[1]' in raw.data
        assert "has no column 'body'" in producer.get_errors()[f"public.{table.name}"]


async def test_other_tables_of_the_publication_are_not_read_and_do_not_change_positions(table: OutboxTable) -> None:
    other = f"other_{table.name}"
    table.execute("CREATE TABLE {} (id int PRIMARY KEY)", other)
    table.execute("ALTER PUBLICATION {} ADD TABLE {}", table.slot, other)
    with table.transaction() as session:
        session.execute(f"INSERT INTO {other} VALUES (1)")
        session.execute(f"INSERT INTO {table.name} (lane) VALUES ('a')")
    (alone,) = await take(table, 1, format="changes")
    upstream = Postgres([table.name, other], slot=table.slot, connection=table.connection)
    async with reading(upstream.producer()) as stream:
        both = [raw for raw, _ in await stream.take(2)]
    assert [raw.value["table"] for raw in both] == [f"public.{other}", f"public.{table.name}"]
    assert (both[1].data, both[1].lane, both[1].position) == (alone.data, alone.lane, alone.position)
    table.execute("DROP TABLE {}", other)


async def test_interleaved_transactions_arrive_in_the_order_of_their_commits(table: OutboxTable) -> None:
    first, second = table.transaction(), table.transaction()
    for number in range(4):
        (first, second)[number % 2].execute(f"INSERT INTO {table.name} (lane, body) VALUES ('a', '{{\"n\":{number}}}')")
    second.commit()
    first.commit()
    raws = await take(table, 4)
    assert [raw.value["n"] for raw in raws] == [1, 3, 0, 2]
    positions = [raw.position for raw in raws]
    assert positions == sorted(set(positions))
    first.close()
    second.close()


@pytest.mark.slow
async def test_a_transaction_with_more_than_65535_rows(table: OutboxTable) -> None:
    table.execute("INSERT INTO {} (body) SELECT json_build_object('n', n) FROM generate_series(0, 69999) AS n", table.name)
    table.send(numbers(70_000, 70_001))
    async with reading(table.producer()) as stream:
        items = await stream.take(70_001)
        positions = [raw.position for raw, _ in items]
        assert positions == sorted(set(positions))
        assert len({raw.lane for raw, _ in items}) == 1
        await stream.advance(items[:69_999])
        assert table.confirmed() < table.lsn()
    async with reading(table.producer()) as stream:
        again = await stream.take(70_001)
        assert [raw.position for raw, _ in again] == positions
        await stream.advance(again)
    table.send(numbers(70_001, 70_002))
    async with reading(table.producer()) as stream:
        assert (await stream.take(1))[0][0].value == {"n": 70_001}


async def test_rows_of_one_megabyte(table: OutboxTable) -> None:
    bodies = [b'{"long":"' + bytes([97 + number]) * 1_000_000 + b'"}' for number in range(8)]
    table.send_together(bodies)
    assert [raw.data for raw in await take(table, 8)] == bodies
