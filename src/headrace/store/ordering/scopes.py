"""Insert and delete scopes of the ordering, in the API server's database or in a separate one."""

from __future__ import annotations

from secrets import randbits
from typing import Final

from sqlalchemy import Connection, Table, delete, func, insert, literal_column, select, update

from headrace.store.db.slices import Slice, size_of
from headrace.store.dialects.statements import in_list, row_by_row
from headrace.store.tables.ordering import ORDERING_TABLES, ordering_scopes

WEBHOOK_PREFIX: Final = "webhook:"
"""The prefix of the names of webhooks' scopes."""

ABANDONED: Final = "abandoned:"
"""The prefix of the names of scopes whose rows are still to be deleted."""
MAX_SLICE_ROWS: Final = 250
"""Maximum rows of abandoned scopes that one transaction deletes: each is in five indexes, at random places of three."""

_ZEROES = ("clock", "head", "position", "lost", "late", "cycles", "handled", "held")


def scope_named(connection: Connection, name: str, lookback: int, *, head: int = 0) -> int:
    """Return the id of a scope, inserting it if it does not exist.

    A new scope has read the log up to `head`. The last given `lookback` (µs) applies.
    """
    scope_id: int | None = connection.execute(select(ordering_scopes.c.id).where(ordering_scopes.c.name == name)).scalar_one_or_none()
    if scope_id is None:
        # random, not 0: a copy of a previous scope with the same id must not match
        values = dict.fromkeys(_ZEROES, 0) | {"version": randbits(40), "name": name, "lookback": lookback, "head": head}
        return int(connection.execute(insert(ordering_scopes).values(**values).returning(ordering_scopes.c.id)).scalar_one())
    connection.execute(update(ordering_scopes).where(ordering_scopes.c.id == scope_id).values(lookback=lookback))
    return scope_id


def fits_one_slice(connection: Connection, scope_id: int) -> bool:
    """Return whether one transaction may delete all rows of a scope."""
    row_by_row(connection)
    row_count = 0
    for table in ORDERING_TABLES:
        if table is not ordering_scopes:
            rows = select(literal_column("1")).where(table.c.scope_id == scope_id).limit(MAX_SLICE_ROWS + 1).subquery()
            row_count += int(connection.execute(select(func.count()).select_from(rows)).scalar_one())
    return row_count <= MAX_SLICE_ROWS


def delete_scope_rows(connection: Connection, scope_id: int) -> None:
    """Delete all rows of a scope, except the scope itself."""
    for table in ORDERING_TABLES:
        if table is not ordering_scopes:
            connection.execute(delete(table).where(table.c.scope_id == scope_id))


def give_up_scope(connection: Connection, scope_id: int) -> None:
    """Abandon a scope: its name becomes free, and `abandoned_scopes` deletes its rows."""
    connection.execute(update(ordering_scopes).where(ordering_scopes.c.id == scope_id).values(name=f"{ABANDONED}{scope_id}"))


def abandoned_scopes(connection: Connection, before: int, limit: int) -> int:
    """Delete one slice of the rows of abandoned scopes, and the scopes without rows. Return how many were deleted.

    A slice has at most `limit` rows, and at most ROWS_AT_ONCE.
    """
    del before  # abandoned scopes are unused, so their age does not matter
    row_by_row(connection)
    given_up = select(ordering_scopes.c.id).where(ordering_scopes.c.name.startswith(ABANDONED, autoescape=True)).limit(1)
    deleted, empty = Slice(min(limit, MAX_SLICE_ROWS)), 0
    while not deleted.full and (scope_id := connection.execute(given_up).scalar_one_or_none()) is not None:
        for table in ORDERING_TABLES:
            if "scope_id" in table.c:
                _delete_some(connection, table, scope_id, deleted)
        if not deleted.full:
            empty += connection.execute(delete(ordering_scopes).where(ordering_scopes.c.id == scope_id)).rowcount
    return len(deleted.rows) + empty


def _delete_some(connection: Connection, table: Table, scope_id: int, deleted: Slice) -> None:
    """Delete rows of a scope while the slice has room."""
    column = next(each for each in table.primary_key.columns if each is not table.c.scope_id)
    mine = table.c.scope_id == scope_id
    size = size_of(*(table.c[name] for name in ("body", "error", "step", "members") if name in table.c))
    some = [row[0] for row in deleted.add(connection, select(column, size).where(mine))]
    if some:
        connection.execute(delete(table).where(mine, in_list(column, "some")), {"some": some})
