"""Removal and reset of scopes."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Connection, delete, func, select, update

from headrace.errors import ApiRefused
from headrace.store.db.database import Database
from headrace.store.pipelines.ledger_deletion import LEDGER_ROWS, delete_ledgers
from headrace.store.pipelines.scope_begin import beginning
from headrace.store.pipelines.scope_leases import holder_of
from headrace.store.pipelines.scope_rows import cursor_columns, scope_row
from headrace.store.tables.pipelines import planned_runs, scope_leases, scopes
from headrace.wire.custody.events import ScopeReport
from headrace.wire.pipelines.scopes import ScopeReset


class Scopes:
    """The scopes of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remove(self, scope: str) -> bool:
        """Remove a pipeline's scope with its open runs and its state; return whether it existed. The log retains no
        events for it.

        Raises:
            ApiRefused: A running job holds it.
        """
        removed = self._database.write(lambda connection: _remove(connection, scope))
        if removed:
            self._delete_ledgers()
        return removed

    def reset(self, scope: str, begin: int | None) -> ScopeReset | None:
        """Reset a pipeline's scope: begin again without its open runs and its state, in a new incarnation. Return None if there is no
        such scope.

        Raises:
            ApiRefused: A running job holds it, or `begin` is beyond the next event of the log.
        """
        reset = self._database.write(lambda connection: _reset(connection, scope, begin, self._database.now()))
        if reset is not None:
            self._delete_ledgers()
        return reset

    def _delete_ledgers(self) -> None:
        """Delete, slice by slice, the rows of reset or removed scopes. Retention continues an interrupted deletion."""
        while self._database.write(partial(delete_ledgers, limit=LEDGER_ROWS)):
            pass


def _remove(connection: Connection, scope: str) -> bool:
    _require_free(connection, scope)
    connection.execute(delete(scope_leases).where(scope_leases.c.scope == scope))
    return bool(connection.execute(delete(scopes).where(scopes.c.scope == scope)).rowcount)


def _reset(connection: Connection, scope: str, begin: int | None, now: int) -> ScopeReset | None:
    _require_free(connection, scope)
    row = scope_row(connection, scope)
    if row is None:
        return None
    where = beginning(connection, begin)
    runs = connection.execute(select(func.count()).where(planned_runs.c.incarnation == row.incarnation)).scalar_one()
    values = {**where.columns(), **cursor_columns(where.cursor), "updated": now}
    connection.execute(update(scopes).where(scopes.c.scope == scope).values(values))
    held = ScopeReport.model_validate_json(row.report).held
    return ScopeReset(scope=scope, first=where.seq + 1, open_runs=runs, waiting=row.waiting, held=held)


def _require_free(connection: Connection, scope: str) -> None:
    holder = holder_of(connection, scope)
    if holder is not None:
        hint = "Stop that pipeline first; the job of one that was killed ends after 30 seconds."
        raise ApiRefused(f"Scope '{scope}' is read by job {holder.id}.", hint=hint, status=409, problem="held")
