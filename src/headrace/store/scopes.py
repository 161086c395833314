"""Scopes: how far each consumer of the log has committed, and what it told of itself."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, insert, select

from headrace.errors import ApiRefused
from headrace.store.database import Database
from headrace.store.jobs import require_running
from headrace.store.scope_leases import hold
from headrace.store.tables import jobs, scopes
from headrace.wire.events import Cursor, ScopeReport

BEGINNING = Cursor(cursor=0, batch=0)


class Scopes:
    """The scopes of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def cursor(self, scope: str) -> Cursor:
        """Return the scope's last commit; a scope that never committed is at the beginning."""
        with self._database.reading() as connection:
            row = connection.execute(select(*(scopes.c[name] for name in Cursor.model_fields)).where(scopes.c.scope == scope)).one_or_none()
        if row is None:
            return BEGINNING
        return Cursor.model_validate({**row._asdict(), "report": ScopeReport.model_validate_json(row.report)})

    def commit(self, job_id: int, scope: str, cursor: Cursor) -> None:
        """Keep the scope's newest commit. Raises `Fenced` where the job has ended or another one holds the scope."""
        self._database.write(lambda connection: _commit(connection, job_id, scope, cursor, self._database.now()))

    def remove(self, scope: str) -> bool:
        """Forget how far a pipeline's scope is, so that the log need keep nothing for it; whether it was there.

        Raises:
            ApiRefused: The job that commits it runs.
        """
        return self._database.write(lambda connection: _remove(connection, scope))


def _commit(connection: Connection, job_id: int, scope: str, cursor: Cursor, now: int) -> None:
    project = require_running(connection, job_id).project
    hold(connection, job_id, scope, now)
    before = connection.execute(select(scopes.c.report).where(scopes.c.scope == scope)).scalar_one_or_none()
    report = _paced(cursor.report or ScopeReport(), before)
    connection.execute(delete(scopes).where(scopes.c.scope == scope))
    connection.execute(insert(scopes).values(scope=scope, project=project, job_id=job_id, updated=now, **_row(cursor, report)))


def _remove(connection: Connection, scope: str) -> bool:
    running = select(jobs.c.id).join(scopes, scopes.c.job_id == jobs.c.id).where(scopes.c.scope == scope, jobs.c.state == "running")
    job = connection.execute(running).scalar_one_or_none()
    if job is not None:
        raise ApiRefused(f"Scope '{scope}' is read by job {job}.", hint="Stop that pipeline first.", status=409, problem="invalid")
    return bool(connection.execute(delete(scopes).where(scopes.c.scope == scope)).rowcount)


def _paced(report: ScopeReport, before: str | None) -> ScopeReport:
    """Return the report, with how fast the last batch was that read anything: one that only lets the scope's clock go on tells nothing."""
    if report.read or before is None:
        return report
    last = ScopeReport.model_validate_json(before)
    return report.model_copy(update={"read": last.read, "seconds": last.seconds}) if last.read else report


def _row(cursor: Cursor, report: ScopeReport) -> dict[str, Any]:
    return {
        **cursor.model_dump(exclude={"kept", "report"}),
        "kept": cursor.cursor if cursor.kept is None else cursor.kept,
        "report": report.model_dump_json(),
    }
