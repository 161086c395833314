"""Deletion of the ledgers of scopes that were reset or removed: their rows belong to incarnations that no scope has."""

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


def delete_ledgers(connection: Connection, most: int) -> int:
    """Delete one slice of the rows that belong to no scope; return how many. 0: there are no more."""
    live = set(connection.execute(select(scopes.c.incarnation)).scalars())
    deleted = Slice(most)
    for table, size in _SIZES.items():
        while not deleted.full and (orphan := _orphan(connection, table, live)) is not None:
            mine, (_, *place) = table.c.incarnation == orphan, table.primary_key.columns
            found = deleted.add(connection, select(*place, size).where(mine).order_by(*place))
            if found:
                connection.execute(delete(table).where(mine, tuple_(*place) <= tuple(found[-1])[:-1]))
    return len(deleted.rows)


def _orphan(connection: Connection, table: Table, live: Container[str]) -> str | None:
    """Return an incarnation that has rows in the table and no scope, by a look at the index for each incarnation."""
    first, found = func.min(table.c.incarnation), ""
    while (found := connection.execute(select(first).where(table.c.incarnation > found)).scalar_one()) is not None:
        if found not in live:
            return str(found)
    return None


def ledgers(connection: Connection, before: int, most: int) -> int:
    """Delete what is left of scopes that were reset or removed, however young it is."""
    del before
    return delete_ledgers(connection, most)
