"""What is kept for a time only. A sweep forgets at most so many rows in one transaction, and the sums that people see stay right."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, tuple_

from headrace.store.bookkeeping import BOOKS
from headrace.store.deferred_tables import deferred_runs
from headrace.store.forgetting import discarded_letters
from headrace.store.letter_counts import count_deleted_letters
from headrace.store.letter_texts import delete_letters, oversized_texts
from headrace.store.ordering_scopes import abandoned_scopes
from headrace.store.reports import COUNTS, SECONDS
from headrace.store.tables import dead_letter_actions, dead_letters, jobs, runs, stream_reports

Sweep = Callable[[Connection, int, int], int]
"""Forgets what is older than a moment (microseconds), at most so many, within a work of the writer. Returns how many it forgot."""

FORGOTTEN = 0
"""The job under which the reports of those are summed that are forgotten; no job has this number."""


def task_runs(connection: Connection, before: int, most: int) -> int:
    """Forget task runs that have ended. Whoever starts one under the same id again starts another."""
    old = select(deferred_runs.c.run_id).where(deferred_runs.c.finished < before).order_by(deferred_runs.c.finished).limit(most)
    return connection.execute(delete(deferred_runs).where(deferred_runs.c.run_id.in_(old))).rowcount


def pipeline_runs(connection: Connection, before: int, most: int) -> int:
    """Forget reports of pipelines' runs; their pipelines' totals keep what they did."""
    old = select(runs.c.run_id).where(runs.c.started < before).order_by(runs.c.started).limit(most)
    return connection.execute(delete(runs).where(runs.c.run_id.in_(old))).rowcount


def ended_jobs(connection: Connection, before: int, most: int) -> int:
    """Forget jobs that have ended, and sum up what their streams did."""
    # never the last: SQLite would give its id again, and a token of the old job would be one of the new
    last = select(func.max(jobs.c.id)).scalar_subquery()
    over = (jobs.c.ended < before, jobs.c.state != "running", jobs.c.id < last)
    old = connection.execute(select(jobs.c.id).where(*over).order_by(jobs.c.id).limit(most)).scalars().all()
    _sum_up(connection, stream_reports.c.job_id.in_(old))
    return connection.execute(delete(jobs).where(jobs.c.id.in_(old))).rowcount


def letter_actions(connection: Connection, before: int, most: int) -> int:
    """Forget who redrove or discarded dead letters, and when."""
    old = select(dead_letter_actions.c.id).where(dead_letter_actions.c.at < before).order_by(dead_letter_actions.c.id).limit(most)
    return connection.execute(delete(dead_letter_actions).where(dead_letter_actions.c.id.in_(old))).rowcount


def discarded_dead_letters(connection: Connection, before: int, most: int) -> int:
    """Forget dead letters that were discarded, with the raw events in them; how many there were is still told."""
    over = (dead_letters.c.state == "discarded", dead_letters.c.acted < before)
    old = connection.execute(select(dead_letters.c.id).where(*over).limit(most)).scalars().all()
    gone = delete_letters(connection, old)
    if gone:
        count_deleted_letters(connection, gone)
    return gone


SWEEPS: tuple[Sweep, ...] = (
    task_runs,
    pipeline_runs,
    ended_jobs,
    letter_actions,
    discarded_letters,
    discarded_dead_letters,
    oversized_texts,
    abandoned_scopes,
    *BOOKS,
)
"""All but that of the log: whatever is to be kept for a time only goes in here, and `Tidier` does the rest."""


def _sum_up(connection: Connection, which: ColumnElement[bool]) -> None:
    """Put one report of each stream in the place of these, and of what was summed up before."""
    named = select(stream_reports.c.stream).where(which).distinct()
    taken = connection.execute(
        select(stream_reports)
        .where(which | ((stream_reports.c.job_id == FORGOTTEN) & stream_reports.c.stream.in_(named)))
        .order_by(stream_reports.c.updated, stream_reports.c.job_id)
    ).all()
    if not taken:
        return
    summed: dict[str, dict[str, object]] = {}
    for row in taken:
        before = summed.get(row.stream, dict.fromkeys(COUNTS + SECONDS, 0))
        sums = {name: before[name] + getattr(row, name) for name in COUNTS + SECONDS}
        summed[row.stream] = {**row._asdict(), **sums, "job_id": FORGOTTEN, "outstanding": 0}
    keys = [(row.job_id, row.stream) for row in taken]
    connection.execute(delete(stream_reports).where(tuple_(stream_reports.c.job_id, stream_reports.c.stream).in_(keys)))
    connection.execute(insert(stream_reports), list(summed.values()))
