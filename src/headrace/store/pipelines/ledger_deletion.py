"""Deletion of the ledgers of reset or removed scopes. Their rows belong to incarnations that no scope has."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from sqlalchemy import Connection, Table, delete, func, select, tuple_

from headrace.store.db.slices import Slice, size_of
from headrace.store.tables.pipelines import event_positions, plan_slices, planned_runs, scope_state, scopes

LEDGER_ROWS: Final = 500
"""Rows that one transaction deletes."""

_SIZES = {
    planned_runs: size_of(),
    plan_slices: size_of(plan_slices.c.data),
    scope_state: size_of(scope_state.c.value),
    event_positions: size_of(event_positions.c.data),
}


def delete_ledgers(connection: Connection, limit: int) -> int:
    """Delete one slice of the rows that belong to no scope; return their number, 0 if none is left."""
    live = set(connection.execute(select(scopes.c.incarnation)).scalars())
    deleted = Slice(limit)
    for table, size in _SIZES.items():
        while not deleted.full and (orphan := _orphan(connection, table, live)) is not None:
            mine, (_, *key_columns) = table.c.incarnation == orphan, table.primary_key.columns
            rows = deleted.add(connection, select(*key_columns, size).where(mine).order_by(*key_columns))
            if rows:
                connection.execute(delete(table).where(mine, tuple_(*key_columns) <= tuple(rows[-1])[:-1]))
    return len(deleted.rows)


def _orphan(connection: Connection, table: Table, live: Container[str]) -> str | None:
    """Return an incarnation that has rows in the table and no scope, or None. Each incarnation costs one lookup in the index."""
    first, incarnation = func.min(table.c.incarnation), ""
    while (incarnation := connection.execute(select(first).where(table.c.incarnation > incarnation)).scalar_one()) is not None:
        if incarnation not in live:
            return str(incarnation)
    return None


def ledgers(connection: Connection, before: int, limit: int) -> int:
    """Delete the remaining rows of reset or removed scopes, whatever their age."""
    del before
    return delete_ledgers(connection, limit)
