"""What time does to task runs: those whose worker ended are lost to it, those whose time is up expire, those whose trigger failed end."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, delete, func, select

from headrace.core import deferral
from headrace.core.deferral import Deferral
from headrace.store.database import Database
from headrace.store.deferred_rows import read, save
from headrace.store.deferred_tables import deferred_runs
from headrace.store.tables import jobs, triggers

AT_ONCE = 200

_lost = (
    select(deferred_runs.c.run_id)
    .join(jobs, jobs.c.id == deferred_runs.c.job_id)
    .where(deferred_runs.c.state == "running", jobs.c.state != "running")
    .limit(AT_ONCE)
)
_stranded = (
    select(deferred_runs.c.run_id, triggers.c.failure)
    .join(triggers, triggers.c.id == deferred_runs.c.trigger_id)
    .where(deferred_runs.c.state == "deferred", triggers.c.state == "parked")
    .limit(AT_ONCE)
)


def sweep(database: Database, connection: Connection) -> bool:
    """Take those steps, within a work of the writer; whether there was one to take."""
    steps: dict[str, Deferral] = {}
    late = (
        select(deferred_runs.c.run_id, triggers.c.failure)
        .outerjoin(triggers, triggers.c.id == deferred_runs.c.trigger_id)
        .where(deferred_runs.c.timeout_at <= database.now())
        .limit(AT_ONCE)
    )
    lost = connection.execute(_lost).scalars().all()
    expired = {row.run_id: row.failure for row in connection.execute(late)}
    stranded = {row.run_id: row.failure for row in connection.execute(_stranded)}
    held = read(connection, [*lost, *expired, *stranded])
    for run_id, one in held.items():
        # Looked at again under the lock: another api may have been quicker.
        if one.run.state == "running" and run_id in lost:
            steps[run_id] = deferral.lose(one.run)
        elif one.run.state == "deferred" and run_id in stranded:
            steps[run_id] = deferral.strand(one.run, _told("Its trigger failed for good:", stranded[run_id]))
        elif one.run.state == "deferred" and run_id in expired:
            failure = expired[run_id]
            steps[run_id] = deferral.expire(one.run, None if failure is None else _told("Its trigger last failed with", failure))
    for run_id, after in steps.items():
        save(connection, held[run_id], after, database.now())
    return bool(steps)


def _told(words: str, kept: str | None) -> str:
    """Return `words` and the exception with its traceback, from the JSON that the store keeps of a trigger's last failure."""
    failure = msgspec.json.decode(kept) if kept else {}
    error = f"{words} {failure.get('type', 'unknown')}: {failure.get('message', '')}"
    return "\n".join([error, *failure.get("traceback", ())])


def delete_ended_waits(connection: Connection) -> bool:
    """Delete triggers that nothing waits on and that nobody has yet to let go, at most AT_ONCE; return whether there may be more."""
    # never the last: SQLite would give its id again, and a late word of the old one would count for the new
    last = select(func.max(triggers.c.id)).scalar_subquery()
    over = (
        triggers.c.id < last,
        triggers.c.run_id.is_not(None),
        triggers.c.state == "removed",
        triggers.c.job_id.is_(None),
        triggers.c.revoked_job_id.is_(None),
    )
    some = select(triggers.c.id).where(*over).limit(AT_ONCE)
    return connection.execute(delete(triggers).where(triggers.c.id.in_(some))).rowcount == AT_ONCE


def next_deadline(connection: Connection) -> int | None:
    """Return when the first of the waits is over."""
    found: int | None = connection.execute(select(func.min(deferred_runs.c.timeout_at))).scalar_one()
    return found
