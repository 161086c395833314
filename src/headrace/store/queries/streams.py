"""Shared streams: the last report of each, with the counts of all jobs that ran it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Integer, bindparam, case, func, or_, select

from headrace.store.control.stream_reports import sum_counters
from headrace.store.custody.stream_counts import recorded_by_stream
from headrace.store.dialects.statements import ResultRow
from headrace.store.tables.control import jobs, stream_reports, triggers
from headrace.wire.control.streams import StreamReport
from headrace.wire.status.status import StreamList, StreamStatus

HOLDER = re.compile(r"trigger (\d{1,18})(\b.*)", re.DOTALL)
MAX_LISTED_LANES = 20
"""Maximum number of lanes of each stream in a list of the most important streams."""


_needed_streams = select(triggers.c.stream).where(triggers.c.state != "removed", triggers.c.stream.is_not(None))
_in_use = or_(stream_reports.c.stream.in_(_needed_streams), jobs.c.state == "running")
_running = select(jobs.c.id).where(jobs.c.state == "running")
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
    "in_flight": 0,
    "oldest_unresolved": None,
    "held_by": None,
    "oldest_lane": None,
    "lanes_retrying": 0,
    "retrying": [],
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
    return [_stream(rows, _naming(reports[stream], names), recorded.get(stream)) for stream, rows in by_stream.items()]


def _stream(reports: list[ResultRow], report: StreamReport, recorded: int | None) -> StreamStatus:
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
