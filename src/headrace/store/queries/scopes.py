"""What people are shown of pipelines' scopes: how far each is, what waits in it and for whom, and the batch that it is at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Integer, Row, bindparam, select

from headrace.core.values.moments import moment
from headrace.store.log.extent import came_after
from headrace.store.pipelines.scope_needs import OUTSTANDING
from headrace.store.tables.control import jobs
from headrace.store.tables.log import events
from headrace.store.tables.pipelines import scope_leases, scopes
from headrace.wire.control.jobs import RunningBatch
from headrace.wire.custody.events import CLOCK_STEP, ScopeReport, WaitingEvent
from headrace.wire.pipelines.scopes import ScopeStatus, Underway, Wait, WaitPage, telling

SHOWN = 10
"""How many of those that wait a scope's status names."""

_SECOND = 1_000_000
_STEP = round(CLOCK_STEP * _SECOND)
_OF_REPORT = ("held", "read", "seconds", "holds", "hold_seconds")

Found = Row[*tuple[Any, ...]]

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
    """Return the scopes of pipelines by name, with a `limit` those that are furthest behind; `top` is the head of the log."""
    drivers = _drivers(connection)
    running = _Running.read(connection)
    underway = {name: (job, batch) for job, (name, batch) in drivers.items() if batch is not None}
    listed = _every_scope if limit is None else _furthest_behind
    return [
        _status(connection, row, top, drivers, underway.get(row.scope)).model_copy(update={"running_since": running.since(row)})
        for row in connection.execute(listed, {"limit": limit}).all()
    ]


def waits_of_pipeline(connection: Connection, scope: str, now: int, *, after: int, limit: int) -> WaitPage | None:
    """Return what the scope last told of what waits, with seq > after; None where there is no such scope."""
    row = connection.execute(select(scopes).where(scopes.c.scope == scope)).one_or_none()
    if row is None:
        return None
    report = ScopeReport.model_validate_json(row.report)
    told = sorted((wait for wait in report.waits if wait.seq > after), key=lambda wait: wait.seq)
    shown = told[:limit]
    return WaitPage(
        scope=scope,
        kind="pipeline",
        at=moment(min(now, _clock_until(row, _drivers(connection)))),
        waiting=row.waiting,
        waits=_waits(connection, shown, row.updated, report.lookback),
        after=shown[-1].seq if len(told) > limit else None,
    )


class _Running(NamedTuple):
    """When drivers started (µs): those that hold a scope, by scope, and the last one of each project that holds none."""

    holders: dict[str, int]
    waiting: dict[str, int]

    @classmethod
    def read(cls, connection: Connection) -> _Running:
        """Read them from the jobs that run."""
        rows = connection.execute(_drivers_by_scope).all()
        holders = {row.scope: row.registered for row in rows if row.scope is not None}
        return cls(holders, {row.project: row.registered for row in rows if row.scope is None})

    def since(self, scope: Found) -> datetime | None:
        """Return since when a driver holds the scope, or starts or waits for it (None: none does)."""
        started = self.holders.get(scope.scope, self.waiting.get(scope.project))
        return None if started is None else moment(started)


def _drivers(connection: Connection) -> dict[int, tuple[str | None, Underway | None]]:
    """Return the pipelines' jobs that run, with the batch that each is at, and of which scope."""
    return {row.id: _underway(row) for row in connection.execute(_running_drivers)}


def _underway(job: Found) -> tuple[str | None, Underway | None]:
    if job.batch is None:
        return None, None
    told = RunningBatch.model_validate_json(job.batch)
    since = moment(job.heartbeat - round(told.seconds * _SECOND))
    return told.scope, Underway(batch=told.batch, events=told.events, since=since)


def _status(connection: Connection, row: Found, top: int, drivers: Iterable[int], running: tuple[int, Underway] | None) -> ScopeStatus:
    report = ScopeReport.model_validate_json(row.report)
    # A heartbeat comes once a second: it may tell of a batch that has been committed since.
    over = running is not None and running[0] == row.job_id and running[1].batch <= row.batch and not _is_open(row, running[1].batch)
    waits = _waits(connection, report.waits, row.updated, report.lookback)
    return ScopeStatus(
        **{name: getattr(row, name) for name in ("scope", "cursor", "waiting", "ordered", "lost", "late", "cycles", "batch", "open_runs")},
        **{name: getattr(report, name) for name in _OF_REPORT},
        lag=max(0, top - row.handled_to),
        updated=moment(row.updated),
        clock_until=moment(_clock_until(row, drivers)),
        behind_since=came_after(connection, row.handled_to) if row.handled_to < top else None,
        needs=came_after(connection, row.needed_after),
        waiting_since=min((wait.since for wait in waits), default=None),
        waits=telling(waits, SHOWN),
        underway=None if running is None or over else running[1],
    )


def _is_open(row: Found, batch: int) -> bool:
    """Whether runs of this batch or of an earlier one are open."""
    return row.open_batch is not None and row.open_batch <= batch


def _clock_until(scope: Found, drivers: Iterable[int]) -> int:
    """Return until when the scope's clock goes on by itself (µs): one step beyond what was told last, if its driver runs."""
    return int(scope.updated + (_STEP if scope.job_id in drivers else 0))


def _waits(connection: Connection, waits: Sequence[WaitingEvent], told: int, lookback: float | None) -> list[Wait]:
    """Return waits with the ids of who waits and for whom; `told` is when they were told of. What is not in the log is left out."""
    if not waits:
        return []
    columns = [events.c[name] for name in ("seq", "id", "source", "subject", "follows", "leader_key")]
    found = {row.seq: row for row in connection.execute(select(*columns).where(events.c.seq.in_([wait.seq for wait in waits])))}
    leaders = {row.leader_key for row in found.values()}
    here = set(connection.execute(select(events.c.key).where(events.c.key.in_(leaders))).scalars())
    shown = []
    for wait in waits:
        row = found.get(wait.seq)
        if row is None:
            continue
        since = told - round(wait.seconds * _SECOND)
        missing = row.leader_key not in here
        lost_at = moment(since + round(lookback * _SECOND)) if missing and lookback is not None else None
        known = {name: getattr(row, name) for name in ("seq", "id", "source", "subject", "follows")}
        shown.append(Wait(**known, leader="missing" if missing else "waiting", since=moment(since), lost_at=lost_at))
    return shown
