"""Counters for monitoring: one series for each name up to a limit, and one for the sum of all others.

A name keeps its series while its trigger, stream, scope or pipeline exists. The oldest triggers and the
alphabetically first names have a series. So failures do not make series appear and disappear.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from sqlalchemy import Connection, func, select

from headrace.core.ledger.counters import COUNTER_HELP, StreamCounters
from headrace.store.control.stream_reports import counter_sum
from headrace.store.custody.stream_counts import stream_totals
from headrace.store.db.meta import log_end
from headrace.store.pipelines.run_totals import run_totals
from headrace.store.queries.status import pipeline_list, scope_list
from headrace.store.queries.streams import streams_named
from headrace.store.tables.control import stream_reports, triggers
from headrace.wire.pipelines.scopes import ScopeStatus
from headrace.wire.status.status import PipelineStatus, StreamStatus

MAX_SERIES: Final = 100
"""Maximum number of series of each kind."""
OTHERS: Final = "(others)"


class TriggerCounts(NamedTuple):
    """The counters of one trigger, or of all others."""

    name: str
    fired: int
    rejected: int
    spilled: int
    conflicts: int
    backlog: int


class Series(NamedTuple):
    """The counters for monitoring in addition to the totals of a status."""

    triggers: list[TriggerCounts]
    streams: list[StreamStatus]
    scopes: list[ScopeStatus]
    pipelines: list[PipelineStatus]


def series(connection: Connection) -> Series:
    """Return the series of one snapshot."""
    return Series(
        triggers=_triggers(connection),
        streams=_streams(connection),
        scopes=scope_list(connection, log_end(connection), limit=MAX_SERIES),
        pipelines=_pipelines(connection),
    )


def _triggers(connection: Connection) -> list[TriggerCounts]:
    declared = (triggers.c.run_id.is_(None), triggers.c.state != "removed")
    columns = [triggers.c[name] for name in TriggerCounts._fields[1:]]
    first = connection.execute(select(triggers.c.name, triggers.c.id, *columns).where(*declared).order_by(triggers.c.id).limit(MAX_SERIES))
    rows = first.all()
    counts = [TriggerCounts(row.name, *row[2:]) for row in rows]
    if len(rows) == MAX_SERIES:
        sums = [func.coalesce(func.sum(column), 0) for column in columns]
        rest = connection.execute(select(func.count(), *sums).where(*declared, triggers.c.id > rows[-1].id)).one()
        if rest[0]:
            counts.append(TriggerCounts(OTHERS, *map(int, rest[1:])))
    return counts


def _streams(connection: Connection) -> list[StreamStatus]:
    first = select(stream_reports.c.stream).distinct().order_by(stream_reports.c.stream).limit(MAX_SERIES)
    names = list(connection.execute(first).scalars())
    streams = streams_named(connection, names)
    if len(names) == MAX_SERIES and (others := _other_streams(connection, names[-1])) is not None:
        streams.append(others)
    # A counter for monitoring must never decrease, so it excludes raw events that a killed process may read
    # again.
    return [one.model_copy(update={"counters": replace(one.counters, read=one.recorded)}) for one in streams]


def _other_streams(connection: Connection, after: str) -> StreamStatus | None:
    """Return the sums of the streams whose names come after the given one. Values of single streams are 0 or None."""
    sums = {name: counter_sum(name).label(name) for name in COUNTER_HELP if name not in stream_reports.c}
    reports = select(func.count().label("reports"), func.sum(stream_reports.c.outstanding).label("outstanding"), *sums.values())
    row = connection.execute(reports.where(stream_reports.c.stream > after)).one()
    if not row.reports:
        return None
    totals = stream_totals(connection, after=after)
    values = {name: getattr(row, name) if name.endswith("_seconds") else int(getattr(row, name)) for name in sums}
    counters = StreamCounters(read=totals.recorded, advanced=totals.advanced, **values)
    return StreamStatus(stream=OTHERS, state="", job_id=0, counters=counters, outstanding=int(row.outstanding), recorded=totals.recorded)


def _pipelines(connection: Connection) -> list[PipelineStatus]:
    statuses = pipeline_list(connection, run_totals(connection))
    if len(statuses) <= MAX_SERIES:
        return statuses
    rest = statuses[MAX_SERIES:]
    sums = {name: sum(getattr(one, name) for one in rest) for name in ("runs", "failed", "events", "rows")}
    return [*statuses[:MAX_SERIES], PipelineStatus(name=OTHERS, on=[], table=None, last_run=None, **sums)]
