"""The publication of an upstream: what it publishes, its creation, and why it may not have a table.

Invariant: before a slot is created or confirmed, each table of the upstream is known to be published under its own name. The server sends
changes of a partition under the name of the partition, unless the publication has `publish_via_partition_root`. The reader would ignore
them, and the slot would be confirmed past them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.postgres.server import ServerSession, fetch

FIRST_WITH_ROOTS: Final = 130_000
"""The first version of the server that publishes changes of partitions under the name of the partitioned table."""

_PUBLICATION: Final = "SELECT {via_root} FROM pg_publication WHERE pubname = %s"
_TABLES: Final = "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s"
_PARTITIONS: Final = """
SELECT n.nspname || '.' || c.relname, c.relkind = 'p', ARRAY(
  SELECT an.nspname || '.' || ac.relname
  FROM pg_partition_ancestors(c.oid) AS a JOIN pg_class AS ac ON ac.oid = a.relid JOIN pg_namespace AS an ON an.oid = ac.relnamespace
  WHERE a.relid <> c.oid
)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname || '.' || c.relname = ANY(%s) AND (c.relkind = 'p' OR c.relispartition)
"""


async def prepare_publication(server: ServerSession, name: str, tables: Sequence[str], *, create: bool) -> None:
    """Check that a publication has the tables. Create it, or add them, if `create` is True.

    Raises:
        UpstreamError: It does not exist, does not publish a table under its name, or this role may not create it.
    """
    rows = await _publication(server, name)
    if not rows:
        if not create:
            root = " WITH (publish_via_partition_root = true)" if await _has_partitions(server, tables) else ""
            raise UpstreamError(
                f"Publication {name!r} does not exist.",
                hint=f"Create it before the slot: CREATE PUBLICATION {name} FOR TABLE {', '.join(tables)}{root}. "
                "Or set create_publication=True.",
            )
        await _create(server, name, tables)
    elif missing := await missing_tables(server, name, tables):
        await _check_partitions(server, name, missing)
        if not create:
            raise UpstreamError(
                f"Publication {name!r} does not have {', '.join(missing)}: the changes are not delivered.",
                hint=f"Run: ALTER PUBLICATION {name} ADD TABLE {', '.join(missing)}. Or set create_publication=True.",
            )
        await _add(server, name, missing)
    else:
        return
    if missing := await missing_tables(server, name, tables):
        await _check_partitions(server, name, missing)
        raise UpstreamError(
            f"Publication {name!r} does not have {', '.join(missing)} after it was changed: the changes are not delivered.",
            hint="The view pg_publication_tables shows what it has. Correct the publication.",
        )


async def missing_tables(server: ServerSession, publication: str, tables: Sequence[str]) -> list[str]:
    """Return the tables that a publication does not have under their own names."""
    published = await _published(server, publication)
    return [table for table in tables if table not in published]


async def _publication(server: ServerSession, name: str) -> list[tuple[Any, ...]]:
    """Return one row with whether the publication names the partitioned tables, or no row if it does not exist."""
    via_root = "pubviaroot" if server.info.version >= FIRST_WITH_ROOTS else "false"
    return await fetch(server.connection, _PUBLICATION.format(via_root=via_root), name)


async def _published(server: ServerSession, publication: str) -> set[str]:
    return {row[0] for row in await fetch(server.connection, _TABLES, publication)}


async def _has_partitions(server: ServerSession, tables: Sequence[str]) -> bool:
    if server.info.version < FIRST_WITH_ROOTS:
        return False
    return any(is_partitioned for _, is_partitioned, _ in await fetch(server.connection, _PARTITIONS, list(tables)))


async def _create(server: ServerSession, name: str, tables: Sequence[str]) -> None:
    from psycopg import sql

    options = sql.SQL(" WITH (publish_via_partition_root = true)" if server.info.version >= FIRST_WITH_ROOTS else "")
    statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}{}").format(sql.Identifier(name), _identifiers(tables), options)
    await fetch(server.connection, statement)


async def _add(server: ServerSession, name: str, tables: Sequence[str]) -> None:
    from psycopg import sql

    statement = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(name), _identifiers(tables))
    await fetch(server.connection, statement)


def _identifiers(tables: Sequence[str]) -> Any:
    from psycopg import sql

    return sql.SQL(", ").join(sql.Identifier(*table.split(".", 1)) for table in tables)


async def _check_partitions(server: ServerSession, name: str, missing: Sequence[str]) -> None:
    """Raise `UpstreamError` if partitions are the reason that a table is missing: to add the table would change nothing."""
    rows = await _publication(server, name)
    names_roots = bool(rows and rows[0][0])
    published = await _published(server, name)
    for table, is_partitioned, ancestors in await fetch(server.connection, _PARTITIONS, list(missing)):
        root = next((ancestor for ancestor in ancestors if ancestor in published), None)
        if names_roots and root is not None:
            raise UpstreamError(
                f"Publication {name!r} publishes changes of {table} under the name of {root}: they are not delivered.",
                hint=f"Read {root} instead of its partition. Or use a publication without {root}.",
            )
        if is_partitioned and not names_roots:
            raise UpstreamError(
                f"Publication {name!r} publishes changes of {table} under the names of its partitions: they are not delivered.",
                hint=f"Run: ALTER PUBLICATION {name} SET (publish_via_partition_root = true). Changes before it keep the names of the "
                "partitions: read the partitions to the end first, or send these changes again."
                if server.info.version >= FIRST_WITH_ROOTS
                else "Name the partitions instead of the table, or use PostgreSQL 13 or newer.",
            )
