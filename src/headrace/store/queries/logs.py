"""Possible writers of a log: the triggers, runs and jobs with its name."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, func, or_, select

from headrace.store.tables.control import jobs, triggers
from headrace.store.tables.pipelines import runs
from headrace.store.tables.task_runs import task_runs

ENDED = ("succeeded", "failed", "interrupted", "skipped", "cancelled")
ALIKE = 5
"""Maximum number of runs returned for an ambiguous abbreviated id."""


class LoggedTrigger(NamedTuple):
    """A trigger, and the job that holds it, or None."""

    id: int
    project: str
    name: str
    job_id: int | None


class LoggedJob(NamedTuple):
    """A process that writes, or wrote, logs."""

    id: int
    kind: str
    hostname: str
    state: str
    log_url: str | None


class LoggedRun(NamedTuple):
    """A run, and the job that it was assigned to, or None if unknown."""

    run_id: str
    project: str
    job_id: int | None


_trigger = select(triggers.c.id, triggers.c.project, triggers.c.name, triggers.c.job_id)
_job = select(jobs.c.id, jobs.c.kind, jobs.c.hostname, jobs.c.state, jobs.c.log_url)


def find_triggers(connection: Connection, called: str) -> list[LoggedTrigger]:
    """Return the triggers with this name or id. Several projects may use the same name."""
    which: ColumnElement[bool] = triggers.c.name == called
    if called.isascii() and called.isdigit() and len(called) < 19:
        which = or_(which, triggers.c.id == int(called))
    return [LoggedTrigger(*row) for row in connection.execute(_trigger.where(which).order_by(triggers.c.id))]


def trigger_names(connection: Connection) -> list[str]:
    """Return the names of all triggers."""
    return list(connection.execute(select(triggers.c.name).order_by(triggers.c.name)).scalars())


def find_runs(connection: Connection, called: str) -> list[LoggedRun]:
    """Return the run with this id, or the runs whose ids start with it."""
    matches: list[LoggedRun] = []
    for table, job in ((runs, None), (task_runs, task_runs.c.job_id)):
        columns = [table.c.run_id, table.c.project, *([] if job is None else [job])]
        begins = func.substr(table.c.run_id, 1, len(called)) == called
        for which in (table.c.run_id == called, begins):
            rows = connection.execute(select(*columns).where(which).order_by(table.c.run_id).limit(ALIKE)).all()
            matches += [LoggedRun(row[0], row[1], None if job is None else row[2]) for row in rows]
            if rows and rows[0][0] == called:
                return matches[-1:]
    return matches


def has_ended(connection: Connection, run_id: str) -> bool:
    """Return whether a run has ended. After its end it logs only its last lines."""
    states = [connection.execute(select(table.c.state).where(table.c.run_id == run_id)).scalar_one_or_none() for table in (runs, task_runs)]
    return all(state is None or state in ENDED for state in states)


def job_called(connection: Connection, job_id: int) -> LoggedJob | None:
    """Return the job."""
    row = connection.execute(_job.where(jobs.c.id == job_id)).one_or_none()
    return None if row is None else LoggedJob(*row)


def writers_of(connection: Connection, run: LoggedRun) -> list[LoggedJob]:
    """Return the running jobs that may write the log of a run: its own job, or the pipelines of its project."""
    mine = jobs.c.id == run.job_id if run.job_id is not None else (jobs.c.project == run.project) & (jobs.c.kind == "pipeline")
    rows = connection.execute(_job.where(mine, jobs.c.state == "running", jobs.c.log_url.is_not(None)).order_by(jobs.c.id.desc()))
    return [LoggedJob(*row) for row in rows]
