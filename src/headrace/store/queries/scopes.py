"""Scopes of pipelines: progress, waiting events and their leaders, and the current batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Integer, bindparam, select

from headrace.core.values.moments import moment
from headrace.store.dialects.statements import ResultRow
from headrace.store.log.extent import received_after
from headrace.store.pipelines.event_positions import position_of
from headrace.store.pipelines.scope_needs import OUTSTANDING
from headrace.store.tables.control import jobs
from headrace.store.tables.log import events
from headrace.store.tables.pipelines import scope_leases, scopes
from headrace.wire.control.jobs import RunningBatch
from headrace.wire.custody.events import CLOCK_STEP, ScopeReport, WaitingEvent
from headrace.wire.pipelines.scopes import EventInScope, FollowerWait, RunningBatchSummary, ScopeStatus, WaitPage, select_waits

MAX_STATUS_WAITS = 10
"""Maximum number of waiting events in the status of a scope."""

_SECOND = 1_000_000
_STEP = round(CLOCK_STEP * _SECOND)
_OF_REPORT = ("held", "read", "seconds", "holds", "hold_seconds")


_is_driver = (jobs.c.state == "running", jobs.c.kind == "pipeline")
_running_drivers = select(jobs.c.id, jobs.c.heartbeat, jobs.c.batch).where(*_is_driver)
_drivers_by_scope = (
    select(scope_leases.c.scope, jobs.c.project, jobs.c.registered)
    .outerjoin_from(jobs, scope_leases, scope_leases.c.job_id == jobs.c.id)
    .where(*_is_driver)
    .order_by(jobs.c.registered)
)
_every_scope = select(scopes, *OUTSTANDING).order_by(scopes.c.scope)
_furthest_behind = _every_scope.where(
    scopes.c.scope.in_(select(scopes.c.scope).order_by(scopes.c.cursor, scopes.c.scope).limit(bindparam("limit", type_=Integer)))
)


def pipeline_scopes(connection: Connection, top: int, *, limit: int | None = None) -> list[ScopeStatus]:
    """Return the scopes of pipelines by name, or with a `limit` the ones with the largest lag.

    `top` is the head of the log.
    """
    drivers = _drivers(connection)
    running = _Running.read(connection)
    running_batches = {name: (job, batch) for job, (name, batch) in drivers.items() if batch is not None}
    listed = _every_scope if limit is None else _furthest_behind
    return [
        _status(connection, row, top, drivers, running_batches.get(row.scope)).model_copy(update={"running_since": running.since(row)})
        for row in connection.execute(listed, {"limit": limit}).all()
    ]


def waits_of_pipeline(connection: Connection, scope: str, now: int, *, after: int, limit: int) -> WaitPage | None:
    """Return the waiting events that the scope reported last, with seq > after, or None if the scope does not exist."""
    row = connection.execute(select(scopes).where(scopes.c.scope == scope)).one_or_none()
    if row is None:
        return None
    report = ScopeReport.model_validate_json(row.report)
    reported = sorted((wait for wait in report.waits if wait.seq > after), key=lambda wait: wait.seq)
    page = reported[:limit]
    return WaitPage(
        scope=scope,
        kind="pipeline",
        at=moment(min(now, _clock_until(row, _drivers(connection)))),
        waiting=row.waiting,
        waits=_waits(connection, page, row.updated, report.lookback),
        after=page[-1].seq if len(reported) > limit else None,
    )


def event_in_pipelines(connection: Connection, seq: int, now: int) -> list[EventInScope]:
    """Return the event `seq` of the log in each scope of pipelines that started before it."""
    drivers = _drivers(connection)
    rows = connection.execute(select(scopes).where(scopes.c.begin_seq < seq).order_by(scopes.c.scope)).all()
    return [_event_in(connection, row, seq, min(now, _clock_until(row, drivers))) for row in rows]


def _event_in(connection: Connection, row: ResultRow, seq: int, at: int) -> EventInScope:
    known: dict[str, Any] = {"scope": row.scope, "kind": "pipeline", "at": moment(at)}
    if seq > row.cursor:
        return EventInScope(**known, state="unread")
    released = position_of(connection, row.incarnation, seq)
    if released is not None:
        return EventInScope(**known, state="released", position=released.position, mark=released.mark)
    # A scope orders each event that it reads, so this one waits.
    report = ScopeReport.model_validate_json(row.report)
    waits = _waits(connection, [wait for wait in report.waits if wait.seq == seq], row.updated, report.lookback)
    return EventInScope(**known, state="waiting", wait=waits[0] if waits else None)


class _Running(NamedTuple):
    """Start times of drivers, in microseconds: of each scope's holder, and of each project's last driver without a scope."""

    holders: dict[str, int]
    waiting: dict[str, int]

    @classmethod
    def read(cls, connection: Connection) -> _Running:
        """Read the start times from the running jobs."""
        rows = connection.execute(_drivers_by_scope).all()
        holders = {row.scope: row.registered for row in rows if row.scope is not None}
        return cls(holders, {row.project: row.registered for row in rows if row.scope is None})

    def since(self, scope: ResultRow) -> datetime | None:
        """Return the start time of the driver that holds the scope, or starts or waits for it, or None without a driver."""
        started = self.holders.get(scope.scope, self.waiting.get(scope.project))
        return None if started is None else moment(started)


def _drivers(connection: Connection) -> dict[int, tuple[str | None, RunningBatchSummary | None]]:
    """Return the running jobs of pipelines, each with its current batch and the scope of that batch."""
    return {row.id: _running_batch(row) for row in connection.execute(_running_drivers)}


def _running_batch(job: ResultRow) -> tuple[str | None, RunningBatchSummary | None]:
    if job.batch is None:
        return None, None
    running_batch = RunningBatch.model_validate_json(job.batch)
    since = moment(job.heartbeat - round(running_batch.seconds * _SECOND))
    return running_batch.scope, RunningBatchSummary(batch=running_batch.batch, events=running_batch.events, since=since)


def _status(
    connection: Connection, row: ResultRow, top: int, drivers: Iterable[int], running: tuple[int, RunningBatchSummary] | None
) -> ScopeStatus:
    report = ScopeReport.model_validate_json(row.report)
    # Heartbeats arrive once a second, so one may report a batch that has been committed since.
    over = running is not None and running[0] == row.job_id and running[1].batch <= row.batch and not _is_open(row, running[1].batch)
    waits = _waits(connection, report.waits, row.updated, report.lookback)
    return ScopeStatus(
        **{name: getattr(row, name) for name in ("scope", "cursor", "waiting", "ordered", "lost", "late", "cycles", "batch", "open_runs")},
        **{name: getattr(report, name) for name in _OF_REPORT},
        lag=max(0, top - row.handled_to),
        updated=moment(row.updated),
        clock_until=moment(_clock_until(row, drivers)),
        behind_since=received_after(connection, row.handled_to) if row.handled_to < top else None,
        needs=received_after(connection, row.needed_after),
        waiting_since=min((wait.since for wait in waits), default=None),
        waits=select_waits(waits, MAX_STATUS_WAITS),
        running_batch=None if running is None or over else running[1],
    )


def _is_open(row: ResultRow, batch: int) -> bool:
    """Return whether runs of this batch or of an earlier one are open."""
    return row.open_batch is not None and row.open_batch <= batch


def _clock_until(scope: ResultRow, drivers: Iterable[int]) -> int:
    """Return the time up to which the scope's clock advances on its own, in microseconds.

    While its driver runs, that is one step after the last report.
    """
    return int(scope.updated + (_STEP if scope.job_id in drivers else 0))


def _waits(connection: Connection, waits: Sequence[WaitingEvent], reported: int, lookback: float | None) -> list[FollowerWait]:
    """Return waits with the ids of their events and leaders, as reported at `reported`.

    Events that are not in the log are omitted.
    """
    if not waits:
        return []
    columns = [events.c[name] for name in ("seq", "id", "source", "subject", "follows", "leader_key")]
    event_rows = {row.seq: row for row in connection.execute(select(*columns).where(events.c.seq.in_([wait.seq for wait in waits])))}
    leaders = {row.leader_key for row in event_rows.values()}
    here = set(connection.execute(select(events.c.key).where(events.c.key.in_(leaders))).scalars())
    summaries = []
    for wait in waits:
        row = event_rows.get(wait.seq)
        if row is None:
            continue
        since = reported - round(wait.seconds * _SECOND)
        missing = row.leader_key not in here
        lost_at = moment(since + round(lookback * _SECOND)) if missing and lookback is not None else None
        known = {name: getattr(row, name) for name in ("seq", "id", "source", "subject", "follows")}
        summaries.append(FollowerWait(**known, leader="missing" if missing else "waiting", since=moment(since), lost_at=lost_at))
    return summaries
