"""The rows of `scopes`: one for each pipeline's scope, from its first lease until it is removed."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select, update

from headrace.store.control.jobs import RunningJob
from headrace.store.pipelines.scope_begin import Begin
from headrace.store.tables.pipelines import scopes
from headrace.wire.custody.events import Cursor, ScopeReport


def scope_row(connection: Connection, scope: str) -> Any:
    """Return the row of a scope, or None."""
    return connection.execute(select(scopes).where(scopes.c.scope == scope)).one_or_none()


def cursor_of(row: Any) -> Cursor:
    """Return the cursor in a row of `scopes`."""
    fields = {name: getattr(row, name) for name in Cursor.model_fields}
    return Cursor.model_validate({**fields, "report": ScopeReport.model_validate_json(row.report)})


def add_scope(connection: Connection, scope: str, job: RunningJob, begin: Begin, now: int) -> None:
    """Add a scope that has read nothing."""
    known = {"scope": scope, "project": job.project, "job_id": job.id, "updated": now}
    connection.execute(insert(scopes).values(**known, **begin.columns(), **cursor_columns(begin.cursor)))


def move_scope(connection: Connection, scope: str, job: RunningJob, cursor: Cursor, now: int, **more: Any) -> None:
    """Update the position and the report of a scope; `more` has values of other columns.

    An empty report leaves the rate of the last batch unchanged, because a batch that only moves the scope's clock
    has no rate.
    """
    before = connection.execute(select(scopes.c.report).where(scopes.c.scope == scope)).scalar_one()
    values = cursor_columns(cursor.model_copy(update={"report": _paced(cursor.report or ScopeReport(), before)}))
    moved = update(scopes).where(scopes.c.scope == scope)
    connection.execute(moved.values(project=job.project, job_id=job.id, updated=now, **values, **more))


def set_pace(connection: Connection, scope: str, read: int, seconds: float) -> None:
    """Store the number of events of a scope's last batch, and its duration."""
    mine = scopes.c.scope == scope
    report = ScopeReport.model_validate_json(connection.execute(select(scopes.c.report).where(mine)).scalar_one())
    paced = report.model_copy(update={"read": read, "seconds": seconds})
    connection.execute(update(scopes).where(mine).values(report=paced.model_dump_json()))


def cursor_columns(cursor: Cursor) -> dict[str, Any]:
    """Return the columns of `scopes` that a cursor has."""
    return {
        **cursor.model_dump(exclude={"report"}),
        "low_watermark": cursor.cursor if cursor.low_watermark is None else cursor.low_watermark,
        "report": (cursor.report or ScopeReport()).model_dump_json(),
    }


def _paced(report: ScopeReport, before: str) -> ScopeReport:
    last = ScopeReport.model_validate_json(before)
    return report if report.read or not last.read else report.model_copy(update={"read": last.read, "seconds": last.seconds})
