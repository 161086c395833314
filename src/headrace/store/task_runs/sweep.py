"""Sweep task runs: release those of ended workers, expire those past their deadline, end those with a failed trigger."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, delete, func, select

from headrace.core import task_run
from headrace.core.task_run import TaskRunState
from headrace.store.db.database import Database
from headrace.store.db.slices import Slice, size_of, take_slice
from headrace.store.tables.control import jobs, triggers
from headrace.store.tables.task_runs import task_runs
from headrace.store.task_runs.rows import read, save

BATCH_TRIGGERS = 200
"""Maximum number of triggers that one transaction deletes."""
BATCH_STEPS = 40
"""Maximum number of runs that one transaction releases. Each of them takes about ten statements."""
BATCH_CLAIMS = 200
"""Maximum number of runs that one transaction assigns to a worker. It sends another request while it has capacity."""

_size = size_of(*(task_runs.c[name] for name in ("next_kwargs", "result", "error", "callback")))
_lost = (
    select(task_runs.c.run_id, _size)
    .join(jobs, jobs.c.id == task_runs.c.job_id)
    .where(task_runs.c.state == "running", jobs.c.state != "running")
)
_stranded = (
    select(task_runs.c.run_id, triggers.c.failure, _size)
    .join(triggers, triggers.c.id == task_runs.c.trigger_id)
    .where(task_runs.c.state == "deferred", triggers.c.state == "parked")
)


def sweep(database: Database, connection: Connection, age: int) -> bool:
    """Take one slice of these steps at an age of the database, within a unit of work of the writer.

    Return whether there was any step to take.
    """
    steps: dict[str, TaskRunState] = {}
    late = (
        select(task_runs.c.run_id, triggers.c.failure, _size)
        .outerjoin(triggers, triggers.c.id == task_runs.c.trigger_id)
        .where(task_runs.c.timeout_at <= age)
    )
    taken = Slice(BATCH_STEPS)
    lost = {row.run_id for row in taken.add(connection, _lost)}
    expired = {row.run_id: row.failure for row in taken.add(connection, late)}
    stranded = {row.run_id: row.failure for row in taken.add(connection, _stranded)}
    held = read(connection, [*lost, *expired, *stranded])
    for run_id, one in held.items():
        # Checked again under the lock, because another API server may have been quicker.
        if one.run.state == "running" and run_id in lost:
            steps[run_id] = task_run.worker_lost(one.run)
        elif one.run.state == "deferred" and run_id in stranded:
            steps[run_id] = task_run.trigger_lost(one.run, _failure_text("Its trigger failed for good:", stranded[run_id]))
        elif one.run.state == "deferred" and run_id in expired:
            failure = expired[run_id]
            steps[run_id] = task_run.expire(one.run, None if failure is None else _failure_text("Its trigger last failed with", failure))
    for run_id, after in steps.items():
        save(connection, held[run_id], after, database.now())
    return bool(steps)


def _failure_text(words: str, failure_json: str | None) -> str:
    """Return `words` followed by the exception and its traceback, from the stored JSON of a trigger's last failure."""
    failure = msgspec.json.decode(failure_json) if failure_json else {}
    error = f"{words} {failure.get('type', 'unknown')}: {failure.get('message', '')}"
    return "\n".join([error, *failure.get("traceback", ())])


def delete_ended_waits(connection: Connection) -> bool:
    """Delete triggers that no run waits on and no job must still release, at most BATCH_TRIGGERS. Return whether more may be left."""
    over = (
        triggers.c.run_id.is_not(None),
        triggers.c.state == "removed",
        triggers.c.job_id.is_(None),
        triggers.c.revoked_job_id.is_(None),
    )
    some = take_slice(connection, select(triggers.c.id, size_of(triggers.c.kwargs)).where(*over), BATCH_TRIGGERS)
    connection.execute(delete(triggers).where(triggers.c.id.in_([row.id for row in some.rows])))
    return some.full


def first_claims(connection: Connection, run_ids: Sequence[str]) -> list[str]:
    """Return the first of these runs, as many as one transaction and one response take."""
    mine = select(task_runs.c.run_id, size_of(task_runs.c.next_kwargs)).where(task_runs.c.run_id.in_(run_ids))
    ordered = mine.order_by(task_runs.c.changed, task_runs.c.run_id)
    return [row.run_id for row in take_slice(connection, ordered, BATCH_CLAIMS).rows] if run_ids else []


def next_deadline(connection: Connection) -> int | None:
    """Return the age of the database at the first deadline, or None without a deadline."""
    deadline: int | None = connection.execute(select(func.min(task_runs.c.timeout_at))).scalar_one()
    return deadline
