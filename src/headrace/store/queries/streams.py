"""Shared streams: the last report of each, with the counts of all jobs that ran it. Upstreams are the streams that projects declare.

The cost of a page grows with its streams, never with the number of recorded lanes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Integer, bindparam, case, func, or_, select

from headrace.store.control.stream_reports import sum_counters
from headrace.store.custody.dead_letter_copies import CopyCounts, copy_counts
from headrace.store.custody.stream_counts import recorded_by_stream
from headrace.store.dialects.statements import ResultRow, in_list
from headrace.store.queries.triggers import last_failure
from headrace.store.tables.control import jobs, stream_reports, triggers
from headrace.store.tables.custody import lanes
from headrace.wire.control.streams import LaneReport, StreamReport
from headrace.wire.status.status import StreamList, StreamStatus
from headrace.wire.status.upstreams import KINDS, MAX_COUNTED_LANES, MAX_LANES, MAX_PROBLEMS, UpstreamLane, UpstreamList, UpstreamStatus

HOLDER = re.compile(r"trigger (\d{1,18})(\b.*)", re.DOTALL)
MAX_LISTED_LANES = 20
"""Maximum number of lanes of each stream in a list of the most important streams."""


_declared = (triggers.c.stream.is_not(None), triggers.c.run_id.is_(None), triggers.c.state != "removed")
_recorded = select(lanes.c.lane, lanes.c.last, lanes.c.moved).where(lanes.c.stream == bindparam("of"), lanes.c.last.is_not(None))
_first_recorded = _recorded.limit(MAX_COUNTED_LANES).subquery()
_lane_count = select(func.count()).select_from(_first_recorded)
_latest = select(_first_recorded).order_by(_first_recorded.c.moved.desc(), _first_recorded.c.lane).limit(MAX_LANES)
_positions = select(lanes.c.lane, lanes.c.last).where(lanes.c.stream == bindparam("of"), in_list(lanes.c.lane, "names"))
_needed_streams = select(triggers.c.stream).where(triggers.c.state != "removed", triggers.c.stream.is_not(None))
_in_use = or_(stream_reports.c.stream.in_(_needed_streams), jobs.c.state == "running")
_running = select(jobs.c.id).where(jobs.c.state == "running")
_heartbeats = select(jobs.c.id, jobs.c.heartbeat).where(jobs.c.state == "running")
_runs = stream_reports.c.job_id.in_(_running)
_is_polling = case((stream_reports.c.state == "polling", 1), else_=0)
_top = (
    select(stream_reports.c.stream)
    .where(_runs)
    .order_by(_is_polling, stream_reports.c.outstanding.desc(), stream_reports.c.stream)
    .limit(bindparam("limit", type_=Integer))
)
_count = select(func.count()).select_from(stream_reports).where(_runs)

_STOPPED: Final[dict[str, Any]] = {
    "state": "stopped",
    "outstanding": 0,
    "unread": None,
    "in_flight": 0,
    "oldest_unresolved": None,
    "held_by": None,
    "oldest_lane": None,
    "lanes_retrying": 0,
    "retrying": [],
    "copies": None,
}
"""The state of a stream whose job has ended."""


class Streams(NamedTuple):
    """The most important streams by name, and the number of all streams."""

    top: list[StreamStatus]
    total: int


def stream_list(connection: Connection) -> list[StreamStatus]:
    """Return each stream that a job runs or a trigger needs, by name."""
    return _statuses(connection, _reports(connection, _in_use))


def stream_page(connection: Connection, *, after: str | None, limit: int) -> StreamList:
    """Return a page of the streams that a job runs or a trigger needs, by name, after the name `after`."""
    names = select(stream_reports.c.stream).outerjoin(jobs, jobs.c.id == stream_reports.c.job_id).where(_in_use).distinct()
    if after is not None:
        names = names.where(stream_reports.c.stream > after)
    page = list(connection.execute(names.order_by(stream_reports.c.stream).limit(limit)).scalars())
    return StreamList(streams=streams_named(connection, page), after=page[-1] if len(page) == limit else None)


def top_streams(connection: Connection, limit: int) -> Streams:
    """Return at most `limit` streams.

    Running ones come first, among them the ones that do not poll, then those with the most outstanding raw events.
    """
    names = list(connection.execute(_top, {"limit": limit}).scalars())
    total = int(connection.execute(_count).scalar_one())
    if total < limit:
        stopped = select(stream_reports.c.stream).distinct().where(~_runs, stream_reports.c.stream.in_(_needed_streams))
        others = list(connection.execute(stopped.order_by(stream_reports.c.stream)).scalars())
        more = [name for name in others if name not in set(names)]
        total += len(more)
        names += more[: limit - len(names)]
    statuses = streams_named(connection, list(dict.fromkeys(names)))
    return Streams(
        [one.model_copy(update={"lanes": one.lanes[:MAX_LISTED_LANES], "retrying": one.retrying[:1]}) for one in statuses], total
    )


def streams_named(connection: Connection, names: Sequence[str]) -> list[StreamStatus]:
    """Return the streams with these names, by name."""
    return _statuses(connection, _reports(connection, stream_reports.c.stream.in_(names))) if names else []


def _reports(connection: Connection, which: Any) -> Sequence[ResultRow]:
    joined = select(stream_reports, jobs.c.state.label("job_state")).outerjoin(jobs, jobs.c.id == stream_reports.c.job_id)
    return connection.execute(joined.where(which).order_by(stream_reports.c.stream, stream_reports.c.updated)).all()


def _statuses(connection: Connection, report_rows: Sequence[ResultRow]) -> list[StreamStatus]:
    by_stream: dict[str, list[ResultRow]] = defaultdict(list)
    for row in report_rows:
        by_stream[row.stream].append(row)
    reports = {stream: StreamReport.model_validate_json(rows[-1].report) for stream, rows in by_stream.items()}
    names = _holders(connection, reports.values())
    recorded = recorded_by_stream(connection, list(by_stream))
    copies = copy_counts(connection, list(by_stream), [stream for stream, report in reports.items() if report.copies is not None])
    return [_stream(rows, _naming(reports[stream], names), recorded.get(stream), copies.get(stream)) for stream, rows in by_stream.items()]


def _stream(reports: list[ResultRow], report: StreamReport, recorded: int | None, copies: CopyCounts | None) -> StreamStatus:
    last = reports[-1]
    is_running = last.job_state == "running"
    counters = sum_counters(row.counters for row in reports)
    accounted = counters.read if recorded is None else recorded
    if recorded is not None:
        in_flight = max(0, last.read - last.advanced) if is_running else 0
        counters = replace(counters, read=recorded + in_flight, advanced=recorded)
    behind = [max(0, lane.end - (lane.advanced or 0)) for lane in report.lanes if lane.end is not None]
    state = {} if is_running else _STOPPED
    more = {"counters": counters, "job_id": last.job_id, "recorded": accounted, "lag": sum(behind) if behind else None}
    if copies is not None:
        more |= {"copied": copies.copied, "rejected_copies": copies.rejected, "uncopied": copies.waiting}
    return StreamStatus(**{**dict(report), **state, **more})


def _holders(connection: Connection, reports: Any) -> dict[int, str]:
    """Return the names of the triggers that hold the oldest events or retry one. Jobs report only their ids."""
    held = {int(match[1]) for report in reports if (match := HOLDER.match(report.held_by or "")) is not None}
    held.update(retry.trigger_id for report in reports for retry in report.retrying)
    if not held:
        return {}
    return {row.id: row.name for row in connection.execute(select(triggers.c.id, triggers.c.name).where(triggers.c.id.in_(held)))}


def _naming(report: StreamReport, names: dict[int, str]) -> StreamReport:
    held = HOLDER.match(report.held_by or "")
    named: dict[str, Any] = {}
    if held is not None and int(held[1]) in names:
        named["held_by"] = names[int(held[1])] + held[2]
    if report.retrying:
        known = [one.model_copy(update={"trigger": names.get(one.trigger_id, f"trigger {one.trigger_id}")}) for one in report.retrying]
        named["retrying"] = known
    return report.model_copy(update=named) if named else report


def upstream_page(connection: Connection, why: Mapping[int, str], *, silent: int, after: str | None, limit: int) -> UpstreamList:
    """Return a page of the upstreams that triggers of projects read, by name, after the name `after`.

    `why` maps a trigger that no triggerer can run to the reason. A job without a heartbeat since `silent` (microseconds) is silent.
    """
    columns = (func.count().label("number"), func.min(triggers.c.id).label("first"), func.max(triggers.c.job_id).label("job_id"))
    query = select(triggers.c.stream, *columns).where(*_declared).group_by(triggers.c.stream).order_by(triggers.c.stream).limit(limit)
    if after is not None:
        query = query.where(triggers.c.stream > after)
    rows = connection.execute(query).all()
    names = [row.stream for row in rows]
    reports = {one.stream: one for one in streams_named(connection, names)}
    projects, failures = _projects(connection, names), _failures(connection, names)
    heartbeats = {row.id: row.heartbeat for row in connection.execute(_heartbeats)}
    upstreams = []
    for row in rows:
        status = UpstreamStatus(
            stream=row.stream, kind=_kind(row.stream), projects=projects[row.stream], triggers=row.number, state="stopped"
        )
        reader = row.job_id if row.job_id in heartbeats else None
        is_silent = reader is not None and heartbeats[reader] < silent
        if reader is None:
            status = status.model_copy(update={"unread_because": why.get(row.first, "no triggerer has it yet")})
        status = _with_report(connection, status, reports.get(row.stream), None if is_silent else reader, failures[row.stream])
        if is_silent:
            because = f"triggerer {reader} sends no heartbeats"
            status = status.model_copy(update={"job_id": reader, "state": "silent", "unread_because": because})
        upstreams.append(status)
    return UpstreamList(upstreams=upstreams, after=names[-1] if len(names) == limit else None)


def _with_report(
    connection: Connection, status: UpstreamStatus, report: StreamStatus | None, reader: int | None, failures: Iterable[str]
) -> UpstreamStatus:
    """Return the upstream with its lanes and its last report. `reader` is the job that has it."""
    problems = list(failures)
    recorded = int(connection.execute(_lane_count, {"of": status.stream}).scalar_one())
    changes: dict[str, Any] = {"job_id": reader, "state": "stopped" if reader is None else "starting", "lanes_recorded": recorded}
    is_drained = False
    if report is not None:
        changes["uncopied"] = report.uncopied
        problems += [f"{lane.lane}: {lane.error}" for lane in report.lanes if lane.error is not None]
        if reader is not None and report.job_id == reader:
            lag = None if report.unread is None else report.unread + report.outstanding
            is_drained = lag == 0
            open_lanes = {"lanes_open": report.lanes_open}
            if report.copies is not None:
                changes["dead_letter_target"] = report.copies.target
                if report.copies.error is not None:
                    problems.insert(0, f"dead letters are not copied: {report.copies.error}")
            changes |= {"state": report.state, "unread": report.unread, "outstanding": report.outstanding, "lag": lag, **open_lanes}
    reported = [] if report is None else [lane for lane in report.lanes if lane.read is not None or lane.advanced is not None]
    changes |= {"lanes": _upstream_lanes(connection, status.stream, reported[:MAX_LANES], is_drained=is_drained)}
    return status.model_copy(update=changes | {"problems": problems[:MAX_PROBLEMS]})


def _upstream_lanes(connection: Connection, stream: str, reported: Sequence[LaneReport], *, is_drained: bool) -> list[UpstreamLane]:
    """Return the reported lanes, then the recorded lanes that moved last.

    A stream reports only lanes with raw events in process. If it `is_drained`, all that is recorded is advanced.
    """
    names = [one.lane for one in reported]
    stored = {row.lane: row.last for row in connection.execute(_positions, {"of": stream, "names": names})}
    known = [UpstreamLane(lane=one.lane, stored=stored.get(one.lane), advanced=one.advanced, end=one.end) for one in reported]
    others = (row for row in connection.execute(_latest, {"of": stream}) if row.lane not in set(names))
    idle = [UpstreamLane(lane=row.lane, stored=row.last, advanced=row.last if is_drained else None) for row in others]
    return [*known, *idle][:MAX_LANES]


def _kind(stream: str) -> str | None:
    kind, _, rest = stream.partition(":")
    return kind if rest and kind in KINDS else None


def _projects(connection: Connection, names: Sequence[str]) -> Mapping[str, list[str]]:
    query = select(triggers.c.stream, triggers.c.project).distinct().where(*_declared, triggers.c.stream.in_(names))
    projects: dict[str, list[str]] = defaultdict(list)
    for row in connection.execute(query.order_by(triggers.c.project)):
        projects[row.stream].append(row.project)
    return projects


def _failures(connection: Connection, names: Sequence[str]) -> Mapping[str, list[str]]:
    """Return the failures of triggers that do not run now, by stream."""
    number = func.row_number().over(partition_by=triggers.c.stream, order_by=triggers.c.name).label("number")
    columns = (triggers.c.stream, triggers.c.name, triggers.c.state, triggers.c.failure, number)
    failed = select(*columns).where(*_declared, triggers.c.state.in_(("failed", "parked")), triggers.c.stream.in_(names)).subquery()
    failures: dict[str, list[str]] = defaultdict(list)
    for row in connection.execute(select(failed).where(failed.c.number <= MAX_PROBLEMS).order_by(failed.c.stream, failed.c.number)):
        failure = last_failure(row.failure)
        reason = f": {failure['type']}: {failure['message']}" if failure else ""
        failures[row.stream].append(f"trigger {row.name} {'is parked' if row.state == 'parked' else 'failed'}{reason}")
    return failures
