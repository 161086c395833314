"""What a person is shown of everything at one moment. It reads counters, never the whole log, so that a million events cost what ten do."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import NamedTuple

from sqlalchemy import Connection, case, column, func, inspect, or_, select, table, true

from headrace.errors import ResourceError
from headrace.store.browse import Found, newest_events
from headrace.store.deferred_browse import task_run_list
from headrace.store.jobs import Liveness
from headrace.store.log_extent import log_extent
from headrace.store.log_head import log_head
from headrace.store.ordering_browse import sql_scopes
from headrace.store.reports import COUNTS, SECONDS
from headrace.store.run_browse import last_runs
from headrace.store.schema import REVISION_TABLE
from headrace.store.scope_browse import pipeline_scopes
from headrace.store.tables import backlog, dead_letters, forgotten_runs, jobs, pipelines, runs, scopes, spills, stream_reports, triggers
from headrace.store.times import moment
from headrace.store.trigger_browse import blocks, trigger_list
from headrace.wire.dead_letters import DeadLetterState
from headrace.wire.deferred import TaskRun
from headrace.wire.runs import RunReport
from headrace.wire.scopes import ScopeStatus
from headrace.wire.status import BacklogStatus, EventSummary, JobStatus, LogExtent, PipelineStatus, StreamStatus, Totals, TriggerStatus
from headrace.wire.streams import StreamReport

ENDED_SHOWN = 20
LATEST = 20
HOLDER = re.compile(r"trigger (\d+)(\b.*)", re.DOTALL)


class Overview(NamedTuple):
    """All of the status that the database knows; the caller adds its version and the speed. `now` is in microseconds."""

    now: int
    head: int
    log: LogExtent
    totals: Totals
    jobs: list[JobStatus]
    triggers: list[TriggerStatus]
    streams: list[StreamStatus]
    backlogs: list[BacklogStatus]
    letters: dict[DeadLetterState, int]
    scopes: list[ScopeStatus]
    pipelines: list[PipelineStatus]
    runs: list[RunReport]
    task_runs: list[TaskRun]
    recent: list[EventSummary]


def overview(connection: Connection, now: int, liveness: Liveness) -> Overview:
    """Return what the database knows at one moment; `now` is in microseconds."""
    top = log_head(connection)
    per_pipeline = run_totals(connection)
    letters = dead_letter_counts(connection)
    return Overview(
        now=now,
        head=top,
        log=log_extent(connection, top),
        totals=_totals(connection, top, per_pipeline, letters),
        jobs=job_list(connection, now, liveness),
        triggers=trigger_list(connection, now),
        streams=stream_list(connection),
        backlogs=backlog_list(connection),
        letters=letters,
        scopes=scope_list(connection, top),
        pipelines=pipeline_list(connection, per_pipeline),
        runs=last_runs(connection, limit=LATEST, with_seqs=False),
        task_runs=task_run_list(connection, limit=LATEST),
        recent=newest_events(connection, limit=LATEST),
    )


def schema_revision(connection: Connection) -> str:
    """Return the revision of the database's schema.

    Raises:
        ResourceError: The database has no schema of Headrace any more.
    """
    if not inspect(connection).has_table(REVISION_TABLE):
        raise ResourceError("The database has no schema of Headrace.", hint="Was its file removed? Stop the api and restore it.")
    return str(connection.execute(select(column("version_num")).select_from(table(REVISION_TABLE))).scalar_one())


class RunTotals(NamedTuple):
    """The sums of one pipeline's runs; `last` is when the last one started, in microseconds."""

    runs: int
    failed: int
    events: int
    rows: int
    last: int | None


def run_totals(connection: Connection) -> dict[tuple[str, str], RunTotals]:
    """Return the sums of the runs by (project, pipeline), with those of runs that are forgotten."""
    failed = func.sum(case((runs.c.state == "failed", 1), else_=0))
    done = case((runs.c.state == "succeeded", runs.c.events), else_=0)
    sums = select(
        runs.c.project,
        runs.c.pipeline,
        func.count(),
        failed,
        func.coalesce(func.sum(done), 0),
        func.coalesce(func.sum(case((runs.c.state == "succeeded", runs.c.rows), else_=0)), 0),
        func.max(runs.c.started),
    ).group_by(runs.c.project, runs.c.pipeline)
    found: dict[tuple[str, str], RunTotals] = {}
    for row in (*connection.execute(select(forgotten_runs)), *connection.execute(sums)):
        before = found.get((row[0], row[1]), RunTotals(0, 0, 0, 0, None))
        counted, failures, events, rows = (known + int(more) for known, more in zip(before[:4], row[2:6], strict=True))
        found[row[0], row[1]] = RunTotals(counted, failures, events, rows, max(before.last or 0, row[6]))
    return found


def _totals(
    connection: Connection, top: int, per_pipeline: dict[tuple[str, str], RunTotals], letters: dict[DeadLetterState, int]
) -> Totals:
    fired, kept = connection.execute(
        select(func.coalesce(func.sum(triggers.c.fired), 0), func.coalesce(func.sum(triggers.c.backlog), 0))
    ).one()
    read, advanced = connection.execute(
        select(func.coalesce(func.sum(stream_reports.c.read), 0), func.coalesce(func.sum(stream_reports.c.advanced), 0))
    ).one()
    names = ("waiting", "ordered", "lost", "late", "cycles")
    ordering = connection.execute(select(*(func.coalesce(func.sum(scopes.c[name]), 0) for name in names))).one()
    return Totals(
        read=int(read),
        fired=int(fired),
        stored=top,
        advanced=int(advanced),
        **{name: int(value) for name, value in zip(names, ordering, strict=True)},
        runs=sum(sums.runs for sums in per_pipeline.values()),
        rows=sum(sums.rows for sums in per_pipeline.values()),
        dead_letters=letters["open"] + letters["redriven"],
        backlog=int(kept),
    )


def dead_letter_counts(connection: Connection) -> dict[DeadLetterState, int]:
    """Return how many dead letters there are in each state."""
    found = connection.execute(select(dead_letters.c.state, func.count()).group_by(dead_letters.c.state))
    counts: dict[DeadLetterState, int] = {"open": 0, "redriven": 0, "discarded": 0}
    counts.update({row[0]: int(row[1]) for row in found})
    return counts


def backlog_list(connection: Connection) -> list[BacklogStatus]:
    """Return the triggers for which something is kept, those for which the most is first."""
    oldest = (
        select(spills.c.received)
        .join(backlog, backlog.c.spill_id == spills.c.id)
        .where(backlog.c.trigger_id == triggers.c.id, backlog.c.answer.is_(None))
        .order_by(backlog.c.number)
        .limit(1)
        .correlate(triggers)
        .scalar_subquery()
    )
    columns = (triggers.c.id, triggers.c.name, triggers.c.stream, triggers.c.backlog, oldest.label("oldest"))
    found = connection.execute(select(*columns).where(triggers.c.backlog > 0).order_by(triggers.c.backlog.desc(), triggers.c.id))
    return [
        BacklogStatus(
            trigger_id=row.id,
            trigger=row.name,
            stream=row.stream,
            depth=row.backlog,
            oldest=None if row.oldest is None else moment(row.oldest),
        )
        for row in found
    ]


def job_list(connection: Connection, now: int, liveness: Liveness, *, kind: str | None = None) -> list[JobStatus]:
    """Return all processes that run, then those that ended last, at most `ENDED_SHOWN`; of one kind, where it is given.

    A job that should have been heard of is `silent` already here: it is taken for lost only when another job sweeps.
    """
    running = case((jobs.c.state == "running", 0), else_=1)
    silent = now - liveness.threshold
    of_kind = true() if kind is None else jobs.c.kind == kind
    ended = select(jobs.c.id).where(jobs.c.state != "running", of_kind).order_by(jobs.c.id.desc()).limit(ENDED_SHOWN)
    shown = of_kind & or_(jobs.c.state == "running", jobs.c.id.in_(ended))
    found = connection.execute(select(jobs).where(shown).order_by(running, jobs.c.id.desc())).all()
    mine = triggers.c.job_id.in_([row.id for row in found])
    held = {
        row[0]: int(row[1]) for row in connection.execute(select(triggers.c.job_id, func.count()).where(mine).group_by(triggers.c.job_id))
    }
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
            wanted=row.wanted,
            version=row.version,
            capacity=row.capacity,
            queues=[] if row.capacity is None else json.loads(row.queues),
            held=held.get(row.id, 0),
            blocked=blocked.get(row.id),
            project=row.project,
            ended=None if row.ended is None else moment(row.ended),
            reason=row.reason,
        )
        for row in found
    ]


def stream_list(connection: Connection) -> list[StreamStatus]:
    """Return each stream that a job runs or a trigger wants: its last report, with the counts of all the jobs that had it."""
    wanted = select(triggers.c.stream).where(triggers.c.state != "removed", triggers.c.stream.is_not(None))
    found = connection.execute(
        select(stream_reports, jobs.c.state.label("job_state"))
        .outerjoin(jobs, jobs.c.id == stream_reports.c.job_id)
        .where(or_(stream_reports.c.stream.in_(wanted), jobs.c.state == "running"))
        .order_by(stream_reports.c.stream, stream_reports.c.updated)
    )
    by_stream: dict[str, list[Found]] = defaultdict(list)
    for row in found:
        by_stream[row.stream].append(row)
    names = {row.id: row.name for row in connection.execute(select(triggers.c.id, triggers.c.name))}
    return [_stream(rows, names) for rows in by_stream.values()]


def _stream(reports: list[Found], names: dict[int, str]) -> StreamStatus:
    last = reports[-1]
    report = _naming(StreamReport.model_validate_json(last.report), names)
    sums = {name: sum(getattr(row, name) for row in reports) for name in COUNTS + SECONDS if name != "outstanding"}
    over = {"state": "stopped", "outstanding": 0, "in_flight": 0, "oldest_unresolved": None, "held_by": None}
    gone = {} if last.job_state == "running" else over
    behind = [max(0, lane.end - (lane.advanced or 0)) for lane in report.lanes if lane.end is not None]
    lag = sum(behind) if behind else None
    return StreamStatus(**{**report.model_dump(), **sums, **gone, "job_id": last.job_id, "lag": lag})


def _naming(report: StreamReport, names: dict[int, str]) -> StreamReport:
    """Return the report with the name of the trigger that holds the oldest event, which its job knows by number only."""
    held = HOLDER.match(report.held_by or "")
    if held is None or int(held[1]) not in names:
        return report
    return report.model_copy(update={"held_by": names[int(held[1])] + held[2]})


def scope_list(connection: Connection, top: int) -> list[ScopeStatus]:
    """Return the scopes by name, those of pipelines first; `top` is the head of the log."""
    return [*pipeline_scopes(connection, top), *sql_scopes(connection, top)]


def pipeline_list(connection: Connection, per_pipeline: dict[tuple[str, str], RunTotals]) -> list[PipelineStatus]:
    """Return the declared pipelines by name, with the sums of their runs."""
    none = RunTotals(0, 0, 0, 0, None)
    found = connection.execute(select(pipelines).where(pipelines.c.removed.is_(False)).order_by(pipelines.c.name, pipelines.c.project))
    shown = []
    for row in found:
        sums = per_pipeline.get((row.project, row.name), none)
        shown.append(
            PipelineStatus(
                name=row.name,
                on=json.loads(row.patterns),
                table=row.table_name,
                runs=sums.runs,
                failed=sums.failed,
                events=sums.events,
                rows=sums.rows,
                last_run=None if sums.last is None else moment(sums.last),
            )
        )
    return shown
