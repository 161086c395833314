"""Deletion of the ledgers of scopes that were reset or removed: their rows belong to incarnations that no scope has."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, delete, select, tuple_

from headrace.store.pipeline_tables import plan_slices, planned_runs, scope_state
from headrace.store.slices import Slice, size_of
from headrace.store.tables import scopes

LEDGER_ROWS: Final = 500
"""Rows that one transaction deletes."""

_SIZES = {planned_runs: size_of(), plan_slices: size_of(plan_slices.c.data), scope_state: size_of(scope_state.c.value)}


def delete_ledgers(connection: Connection, most: int) -> int:
    """Delete one slice of the rows that belong to no scope; return how many. 0: there are no more."""
    deleted = Slice(most)
    for table, size in _SIZES.items():
        key = table.primary_key.columns
        orphans = select(*key, size).where(table.c.incarnation.not_in(select(scopes.c.incarnation)))
        found = deleted.add(connection, orphans)
        if found:
            connection.execute(delete(table).where(tuple_(*key).in_([tuple(row)[:-1] for row in found])))
    return len(deleted.rows)


def ledgers(connection: Connection, before: int, most: int) -> int:
    """Delete what is left of scopes that were reset or removed, however young it is."""
    del before
    return delete_ledgers(connection, most)
