"""Sweeps of data with a limited retention. Each transaction has a bounded number of rows, and displayed totals stay correct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Row, delete, func, insert, select, tuple_

from headrace.store.control.stream_reports import counter_columns, sum_counters
from headrace.store.custody.pruning import CUSTODY_SWEEPS
from headrace.store.db.slices import Slice, size_of, take_slice
from headrace.store.dead_letters.counts import count_deleted_dead_letters
from headrace.store.dead_letters.texts import delete_dead_letters, oversized_texts
from headrace.store.ordering.scopes import abandoned_scopes
from headrace.store.pipelines.event_positions import positions
from headrace.store.pipelines.ledger_deletion import ledgers
from headrace.store.retention.event_log import discarded_pipeline_dead_letters
from headrace.store.tables.control import jobs, stream_reports
from headrace.store.tables.custody import dead_letter_actions, dead_letter_texts, dead_letters
from headrace.store.tables.pipelines import runs
from headrace.store.tables.task_runs import task_runs

Sweep = Callable[[Connection, int, int], int]
"""Delete one slice of rows older than a time (microseconds), up to a limit, in the writer's transaction.

Return the number of deleted rows; 0 if none is left.
"""

DELETED_JOBS = 0
"""The job number under which the reports of deleted jobs are summed. No job has this number."""


def ended_task_runs(connection: Connection, before: int, limit: int) -> int:
    """Delete ended task runs. A start with the same id then starts another run."""
    size = size_of(*(task_runs.c[name] for name in ("next_kwargs", "result", "error", "callback")))
    query = select(task_runs.c.run_id, size).where(task_runs.c.finished < before).order_by(task_runs.c.finished)
    return _delete(connection, task_runs.c.run_id, take_slice(connection, query, limit))


def pipeline_runs(connection: Connection, before: int, limit: int) -> int:
    """Delete reports of pipelines' runs. The totals of their pipelines still count them."""
    query = select(runs.c.run_id, size_of(runs.c.seqs, runs.c.error)).where(runs.c.started < before).order_by(runs.c.started)
    return _delete(connection, runs.c.run_id, take_slice(connection, query, limit))


def ended_jobs(connection: Connection, before: int, limit: int) -> int:
    """Delete ended jobs and sum up their streams: first a slice of the reports, then jobs without reports."""
    over = (jobs.c.ended < before, jobs.c.state != "running")
    old = connection.execute(select(jobs.c.id).where(*over).order_by(jobs.c.id).limit(limit)).scalars().all()
    keys = (stream_reports.c.job_id, stream_reports.c.stream)
    reports = select(*keys, size_of(stream_reports.c.report)).where(stream_reports.c.job_id.in_(old)).order_by(*keys)
    summed = take_slice(connection, reports, limit)
    _sum_up(connection, [(row.job_id, row.stream) for row in summed.rows])
    if summed.full:
        return len(summed.rows)
    return connection.execute(delete(jobs).where(jobs.c.id.in_(old))).rowcount


def old_dead_letter_actions(connection: Connection, before: int, limit: int) -> int:
    """Delete records of redrives and discards of dead letters."""
    columns = dead_letter_actions.c
    query = select(columns.id, size_of(columns.request)).where(columns.at < before).order_by(columns.id)
    return _delete(connection, columns.id, take_slice(connection, query, limit))


def discarded_dead_letters(connection: Connection, before: int, limit: int) -> int:
    """Delete discarded dead letters with their raw events. Their number is still counted."""
    over = (dead_letters.c.state == "discarded", dead_letters.c.acted < before)
    whole = func.coalesce(dead_letter_texts.c.bytes, 0)
    size = size_of(dead_letters.c.raw, dead_letters.c.reason, dead_letters.c.traceback, plus=whole)
    query = select(dead_letters.c.id, size).outerjoin(dead_letter_texts, dead_letter_texts.c.dead_letter_id == dead_letters.c.id)
    old = take_slice(connection, query.where(*over).order_by(dead_letters.c.acted), limit)
    deleted = delete_dead_letters(connection, [row.id for row in old.rows])
    if deleted:
        count_deleted_dead_letters(connection, deleted)
    return deleted


SWEEPS: tuple[Sweep, ...] = (
    ended_task_runs,
    pipeline_runs,
    ended_jobs,
    old_dead_letter_actions,
    discarded_pipeline_dead_letters,
    discarded_dead_letters,
    oversized_texts,
    abandoned_scopes,
    ledgers,
    positions,
    *CUSTODY_SWEEPS,
)
"""All sweeps except the event log's. Data with a limited retention has its sweep here, and `Pruner` runs it."""


def _delete(connection: Connection, key: Column[Any], old: Slice) -> int:
    """Delete the rows of a slice by their key, which is its first column."""
    return connection.execute(delete(key.table).where(key.in_([row[0] for row in old.rows]))).rowcount


def _sum_up(connection: Connection, reports: Sequence[tuple[int, str]]) -> None:
    """Replace these reports (job, stream) and the previous sum by one report for each stream."""
    if not reports:
        return
    keys_to_sum = [*reports, *{(DELETED_JOBS, stream) for _, stream in reports}]
    which = tuple_(stream_reports.c.job_id, stream_reports.c.stream).in_(keys_to_sum)
    taken = connection.execute(select(stream_reports).where(which).order_by(stream_reports.c.updated, stream_reports.c.job_id)).all()
    by_stream: dict[str, list[Row[Any]]] = {}
    for row in taken:
        by_stream.setdefault(row.stream, []).append(row)
    keys = [(row.job_id, row.stream) for row in taken]
    connection.execute(delete(stream_reports).where(tuple_(stream_reports.c.job_id, stream_reports.c.stream).in_(keys)))
    connection.execute(insert(stream_reports), [_summed(rows) for rows in by_stream.values()])


def _summed(rows: Sequence[Row[Any]]) -> dict[str, Any]:
    """Return one report with the sums of several reports of one stream, the newest last."""
    counters = sum_counters(row.counters for row in rows)
    return {**rows[-1]._asdict(), **counter_columns(counters), "job_id": DELETED_JOBS, "outstanding": 0}
