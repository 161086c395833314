"""Partitioned tables: under which names their changes come, and publications that do not deliver them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.errors import UpstreamError
from headrace.sources.postgres.upstream import Postgres
from headrace.testing.contract.reading import reading
from support.sources.postgres import OutboxTable, shared
from support.sources.reading import until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("postgres")]

ALL = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"


@pytest.fixture
def table() -> Iterator[OutboxTable]:
    """Return a table with two partitions, without a publication and a slot."""
    table = OutboxTable(shared(), slot=False)
    table.execute("DROP PUBLICATION {}", table.slot)
    table.execute("DROP TABLE {}", table.name)
    table.execute("CREATE TABLE {} (id int, lane text, PRIMARY KEY (id)) PARTITION BY RANGE (id)", table.name)
    table.execute("CREATE TABLE {} PARTITION OF {} FOR VALUES FROM (0) TO (10)", f"{table.name}_1", table.name)
    table.execute("CREATE TABLE {} PARTITION OF {} FOR VALUES FROM (10) TO (20)", f"{table.name}_2", table.name)
    yield table
    table.close()


def upstream(table: OutboxTable, *tables: str, create: bool = True) -> Postgres:
    return Postgres(tables or table.name, slot=table.slot, connection=table.connection, create_publication=create)


async def changes(upstream: Postgres, table: OutboxTable, *ids: int) -> list[tuple[str, int]]:
    """Open an upstream, insert rows with these ids, and return the tables and ids of the changes."""
    async with reading(upstream.producer()) as stream:
        await until_in_thread(lambda: table.execute(f"{ALL} AND active", values=[table.slot]) == [(1,)])
        for id in ids:
            table.execute("INSERT INTO {} VALUES (%s, 'x')", table.name, values=[id])
        items = await stream.take(len(ids))
        await stream.advance(items)
        return [(raw.value["table"], raw.value["after"]["id"]) for raw, _ in items]


async def refused(upstream: Postgres, text: str) -> str:
    """Open an upstream, and return the hint of its error."""
    with pytest.raises(UpstreamError, match=text) as raised:
        async with reading(upstream.producer()) as stream:
            await stream.take(1)
    assert raised.value.hint
    return raised.value.hint


async def test_a_created_publication_has_the_changes_of_partitions_under_the_name_of_the_table(table: OutboxTable) -> None:
    name = f"public.{table.name}"
    assert await changes(upstream(table), table, 1, 11) == [(name, 1), (name, 11)]
    assert await changes(upstream(table), table, 2, 12) == [(name, 2), (name, 12)]
    assert await changes(upstream(table, create=False), table, 3) == [(name, 3)]


@pytest.mark.parametrize("create", [True, False])
async def test_a_publication_of_partitions_is_refused_before_a_slot_exists(table: OutboxTable, create: bool) -> None:
    table.execute("CREATE PUBLICATION {} FOR TABLE {}", table.slot, table.name)
    for _ in range(2):
        hint = await refused(upstream(table, create=create), "under the names of its partitions")
    assert table.execute(ALL, values=[table.slot]) == [(0,)]
    statement = f"ALTER PUBLICATION {table.slot} SET (publish_via_partition_root = true)"
    assert statement in hint
    table.execute(statement)
    assert await changes(upstream(table, create=create), table, 1) == [(f"public.{table.name}", 1)]


@pytest.mark.parametrize("kind", ["new", "of the other table", "of all tables"])
async def test_a_partition_beside_its_table_is_refused(table: OutboxTable, kind: str) -> None:
    if kind == "of the other table":
        table.execute("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)", table.slot, table.name)
    elif kind == "of all tables":
        table.execute("CREATE PUBLICATION {} FOR ALL TABLES WITH (publish_via_partition_root = true)", table.slot)
    for _ in range(2):
        hint = await refused(upstream(table, table.name, f"{table.name}_1"), f"under the name of public.{table.name}")
    assert f"Read public.{table.name} instead" in hint
    assert table.execute(ALL, values=[table.slot]) == [(0,)]


async def test_partitions_are_read_under_their_own_names(table: OutboxTable) -> None:
    first, second = f"{table.name}_1", f"{table.name}_2"
    table.execute("CREATE PUBLICATION {} FOR TABLE {}", table.slot, table.name)
    names = [(f"public.{first}", 1), (f"public.{second}", 11)]
    assert await changes(upstream(table, first, second), table, 1, 11) == names
    table.execute("DROP PUBLICATION {}", table.slot)
    table.drop_slot()
    assert await changes(upstream(table, first), table, 2) == [(f"public.{first}", 2)]


async def test_a_partitioned_table_is_added_to_a_publication_that_names_the_tables(table: OutboxTable) -> None:
    table.execute("CREATE PUBLICATION {} WITH (publish_via_partition_root = true)", table.slot)
    hint = await refused(upstream(table, create=False), "does not have")
    assert f"ADD TABLE public.{table.name}" in hint
    assert await changes(upstream(table), table, 1) == [(f"public.{table.name}", 1)]


async def test_the_hint_for_a_missing_publication_has_the_option(table: OutboxTable) -> None:
    hint = await refused(upstream(table, create=False), "does not exist")
    assert f"FOR TABLE public.{table.name} WITH (publish_via_partition_root = true)" in hint
