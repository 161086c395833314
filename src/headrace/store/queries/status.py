"""The status of everything in one snapshot: maintained totals, and the most important entries of each list.

Invariant: its cost grows with live objects (triggers, running jobs, scopes), never with the length of the log
or of the history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, bindparam, case, column, func, inspect, or_, select, table, true

from headrace.core.values.moments import moment
from headrace.errors import ResourceError
from headrace.store.control.balancing import UnassignedTriggers
from headrace.store.control.jobs import Liveness
from headrace.store.custody.stream_counts import stream_totals
from headrace.store.db.meta import log_end
from headrace.store.db.schema import REVISION_TABLE
from headrace.store.dead_letters.counts import dead_letter_counts
from headrace.store.log.extent import log_bounds
from headrace.store.pipelines.run_totals import RunTotals, run_totals
from headrace.store.queries.events import newest_events
from headrace.store.queries.ordering_scopes import sql_scope_count, sql_scopes
from headrace.store.queries.pipeline_runs import last_runs
from headrace.store.queries.scopes import pipeline_scopes
from headrace.store.queries.streams import top_streams
from headrace.store.queries.task_runs import task_run_list
from headrace.store.queries.triggers import blocks, top_triggers
from headrace.store.tables.control import jobs, triggers
from headrace.store.tables.custody import backlog, spills
from headrace.store.tables.pipelines import pipelines, scopes
from headrace.wire.custody.dead_letters import DeadLetterState
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.pipelines.scopes import ScopeStatus
from headrace.wire.status.status import (
    BacklogStatus,
    EventSummary,
    JobStatus,
    ListSizes,
    LogExtent,
    PipelineStatus,
    StreamStatus,
    Totals,
    TriggerStatus,
)
from headrace.wire.task_runs import TaskRunSummary

MAX_LATEST = 20
MAX_ENDED_JOBS = 20
MAX_RUNNING_JOBS = 50
MAX_TRIGGERS = 50
MAX_STREAMS = 20
MAX_BACKLOGS = 20
MAX_SCOPES = 20
MAX_PIPELINES = 50

TRIGGER_STATES = ("waiting", "running", "failed", "parked")


def _sum(value: ColumnElement[Any]) -> ColumnElement[int]:
    return func.coalesce(func.sum(value), 0)


_declared = triggers.c.run_id.is_(None)
_trigger_sums = select(
    _sum(triggers.c.fired),
    _sum(triggers.c.backlog),
    func.count().filter(triggers.c.backlog > 0),
    *(func.count().filter(triggers.c.state == state, _declared) for state in TRIGGER_STATES),
)
_ORDERING = ("waiting", "ordered", "lost", "late", "cycles")
_ordering_sums = select(*(_sum(scopes.c[name]) for name in _ORDERING))
_running_jobs = select(jobs.c.kind, func.count(), func.count(jobs.c.blocked)).where(jobs.c.state == "running").group_by(jobs.c.kind)
_held = select(triggers.c.job_id, func.count()).where(triggers.c.job_id.in_(bindparam("ids", expanding=True))).group_by(triggers.c.job_id)
_scope_count = select(func.count()).select_from(scopes)
_pipelines = select(pipelines).where(pipelines.c.removed.is_(False)).order_by(pipelines.c.name, pipelines.c.project)


@cache
def _job_query(kind: str | None, limit: int | None) -> Select[Any]:
    """Return the query of `job_list`. A job is silent if its heartbeat is before `silent` (microseconds)."""
    of_kind = true() if kind is None else jobs.c.kind == kind
    urgency = case((jobs.c.heartbeat < bindparam("silent"), 0), (jobs.c.blocked.is_not(None), 1), else_=2)
    running = (
        select(jobs.c.id)
        .where(jobs.c.state == "running", of_kind)
        .order_by(urgency, jobs.c.kind == "worker", jobs.c.id.desc())
        .limit(limit)
    )
    ended = select(jobs.c.id).where(jobs.c.state != "running", of_kind).order_by(jobs.c.id.desc()).limit(MAX_ENDED_JOBS)
    order = case((jobs.c.state == "running", 0), else_=1)
    return select(jobs).where(or_(jobs.c.id.in_(running), jobs.c.id.in_(ended))).order_by(order, jobs.c.id.desc())


class Overview(NamedTuple):
    """The part of the status that the database stores. The caller adds its version and the throughput.

    `now` is in microseconds.
    """

    now: int
    head: int
    log: LogExtent
    totals: Totals
    counts: ListSizes
    jobs: list[JobStatus]
    triggers: list[TriggerStatus]
    streams: list[StreamStatus]
    backlogs: list[BacklogStatus]
    dead_letters: dict[DeadLetterState, int]
    scopes: list[ScopeStatus]
    pipelines: list[PipelineStatus]
    runs: list[RunReport]
    task_runs: list[TaskRunSummary]
    recent: list[EventSummary]


class TriggerSums(NamedTuple):
    """The sums over present and past triggers, and the number of declared triggers by state."""

    fired: int
    backlog: int
    backlogs: int
    states: dict[str, int]


def overview(connection: Connection, now: int, liveness: Liveness, unserved: UnassignedTriggers | None = None) -> Overview:
    """Return the status that the database stores, from one snapshot. `now` is in microseconds.

    `unserved` caches between calls which triggers no triggerer can run.
    """
    top = log_end(connection)
    per_pipeline = run_totals(connection)
    dead_letter_totals = dead_letter_counts(connection)
    sums = trigger_sums(connection)
    why = (unserved or UnassignedTriggers())(connection)
    streams = top_streams(connection, MAX_STREAMS)
    scope_statuses = scope_list(connection, top, limit=MAX_SCOPES)
    pipeline_statuses = pipeline_list(connection, per_pipeline)
    running, blocked = running_jobs(connection)
    return Overview(
        now=now,
        head=top,
        log=log_bounds(connection, top),
        totals=_totals(connection, top, per_pipeline, dead_letter_totals, sums),
        counts=ListSizes(
            jobs=running,
            blocked=blocked,
            triggers=sums.states,
            unserved=len(why),
            streams=streams.total,
            backlogs=sums.backlogs,
            scopes=scope_count(connection),
            pipelines=len(pipeline_statuses),
        ),
        jobs=job_list(connection, now, liveness, limit=MAX_RUNNING_JOBS),
        triggers=top_triggers(connection, now, why, MAX_TRIGGERS),
        streams=streams.top,
        backlogs=backlog_list(connection, limit=MAX_BACKLOGS) if sums.backlogs else [],
        dead_letters=dead_letter_totals,
        scopes=scope_statuses,
        pipelines=pipeline_statuses[:MAX_PIPELINES],
        runs=last_runs(connection, limit=MAX_LATEST, with_seqs=False),
        task_runs=task_run_list(connection, limit=MAX_LATEST),
        recent=newest_events(connection, limit=MAX_LATEST),
    )


def schema_revision(connection: Connection) -> str:
    """Return the revision of the database's schema.

    Raises:
        ResourceError: The database no longer has a schema of Headrace.
    """
    if not inspect(connection).has_table(REVISION_TABLE):
        raise ResourceError("The database has no schema of Headrace.", hint="Was its file removed? Stop the api and restore it.")
    return str(connection.execute(select(column("version_num")).select_from(table(REVISION_TABLE))).scalar_one())


def trigger_sums(connection: Connection) -> TriggerSums:
    """Return the sums over all triggers, in one pass over them."""
    fired, depth, backlogs, *counts = map(int, connection.execute(_trigger_sums).one())
    return TriggerSums(fired, depth, backlogs, dict(zip(TRIGGER_STATES, counts, strict=True)))


def _totals(
    connection: Connection,
    top: int,
    per_pipeline: Mapping[tuple[str, str], RunTotals],
    dead_letters: Mapping[DeadLetterState, int],
    sums: TriggerSums,
) -> Totals:
    streams = stream_totals(connection)
    ordering = connection.execute(_ordering_sums).one()
    return Totals(
        read=streams.read,
        fired=sums.fired,
        stored=top,
        advanced=streams.advanced,
        **{name: int(value) for name, value in zip(_ORDERING, ordering, strict=True)},
        runs=sum(each.runs for each in per_pipeline.values()),
        rows=sum(each.rows for each in per_pipeline.values()),
        dead_letters=dead_letters["open"] + dead_letters["redriven"],
        backlog=sums.backlog,
    )


def backlog_list(connection: Connection, *, limit: int | None = None) -> list[BacklogStatus]:
    """Return the triggers that have a backlog, the largest backlog first."""
    oldest = (
        select(spills.c.received)
        .join(backlog, backlog.c.spill_id == spills.c.id)
        .where(backlog.c.trigger_id == triggers.c.id, backlog.c.answer.is_(None))
        .order_by(backlog.c.number)
        .limit(1)
        .correlate(triggers)
        .scalar_subquery()
    )
    columns = (triggers.c.id, triggers.c.name, triggers.c.stream, triggers.c.backlog, triggers.c.state, oldest.label("oldest"))
    deepest = select(*columns).where(triggers.c.backlog > 0).order_by(triggers.c.backlog.desc(), triggers.c.id).limit(limit)
    return [
        BacklogStatus(
            trigger_id=row.id,
            trigger=row.name,
            stream=row.stream,
            depth=row.backlog,
            oldest=None if row.oldest is None else moment(row.oldest),
            removed=row.state == "removed",
        )
        for row in connection.execute(deepest)
    ]


def running_jobs(connection: Connection) -> tuple[dict[str, int], int]:
    """Return the number of running processes by kind, and the number of blocked ones."""
    rows = connection.execute(_running_jobs).all()
    return {row[0]: int(row[1]) for row in rows}, sum(int(row[2]) for row in rows)


def triggerer_list(connection: Connection, now: int, liveness: Liveness) -> list[JobStatus]:
    """Return the running triggerers, then the ones that ended last."""
    return job_list(connection, now, liveness, kind="triggerer")


def job_list(connection: Connection, now: int, liveness: Liveness, *, kind: str | None = None, limit: int | None = None) -> list[JobStatus]:
    """Return at most `limit` running processes, then the ones that ended last, of `kind` if given.

    With a `limit`, silent and blocked ones come first. A job is `silent` here as soon as its heartbeat is
    overdue. It counts as lost only when another job sweeps.
    """
    silent = now - liveness.threshold
    rows = connection.execute(_job_query(kind, limit), {"silent": silent}).all()
    held = {row[0]: int(row[1]) for row in connection.execute(_held, {"ids": [row.id for row in rows]})}
    blocked = blocks(connection)
    return [
        JobStatus(
            id=row.id,
            kind=row.kind,
            state="silent" if row.state == "running" and row.heartbeat < silent else row.state,
            hostname=row.hostname,
            pid=row.pid,
            started=moment(row.registered),
            last_heartbeat=moment(row.heartbeat),
            desired_state=row.desired_state,
            version=row.version,
            capacity=row.capacity,
            queues=[] if row.capacity is None else json.loads(row.queues),
            held=held.get(row.id, 0),
            blocked=blocked.get(row.id),
            project=row.project,
            ended=None if row.ended is None else moment(row.ended),
            reason=row.reason,
        )
        for row in rows
    ]


def scope_list(connection: Connection, top: int, *, limit: int | None = None) -> list[ScopeStatus]:
    """Return the scopes, those of pipelines first: by name, or with a `limit` by lag, the largest first.

    `top` is the head of the log.
    """
    statuses = pipeline_scopes(connection, top, limit=limit)
    room = None if limit is None else limit - len(statuses)
    return statuses if room == 0 else [*statuses, *sql_scopes(connection, top, limit=room)]


def scope_count(connection: Connection) -> int:
    """Return the number of scopes."""
    return int(connection.execute(_scope_count).scalar_one()) + sql_scope_count(connection)


def pipeline_list(connection: Connection, per_pipeline: Mapping[tuple[str, str], RunTotals]) -> list[PipelineStatus]:
    """Return the declared pipelines by name, with the sums of their runs."""
    none = RunTotals(0, 0, 0, 0, None)
    statuses = []
    for row in connection.execute(_pipelines):
        sums = per_pipeline.get((row.project, row.name), none)
        statuses.append(
            PipelineStatus(
                name=row.name,
                on=json.loads(row.patterns),
                table=row.table_name,
                on_failure=row.on_failure,
                runs=sums.runs,
                failed=sums.failed,
                events=sums.events,
                rows=sums.rows,
                last_run=None if sums.last is None else moment(sums.last),
            )
        )
    return statuses
