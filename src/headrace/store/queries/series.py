"""The counters that monitoring reads: one series for each name up to a limit, and one more for the sum of all others.

A name keeps its series as long as its trigger, stream, scope or pipeline is there: the oldest triggers and the first names by alphabet
have one. So series do not come and go with what happens to be in trouble.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import Connection, func, select

from headrace.store.control.stream_reports import COUNTS, SECONDS
from headrace.store.custody.stream_counts import stream_totals
from headrace.store.db.meta import log_head
from headrace.store.pipelines.run_totals import run_totals
from headrace.store.queries.status import pipeline_list, scope_list
from headrace.store.queries.streams import streams_named
from headrace.store.tables.control import stream_reports, triggers
from headrace.wire.pipelines.scopes import ScopeStatus
from headrace.wire.status.status import PipelineStatus, StreamStatus

MAX_SERIES: Final = 100
"""Of each kind."""
OTHERS: Final = "(others)"

_TRIGGER_COUNTS: Final = ("fired", "rejected", "spilled", "conflicts", "backlog")


class TriggerCounts(NamedTuple):
    """The counters of one trigger, or of all others."""

    name: str
    fired: int
    rejected: int
    spilled: int
    conflicts: int
    backlog: int


class StreamCounts(NamedTuple):
    """The sums of the streams that have no series of their own."""

    stream: str
    counts: dict[str, float]


class Series(NamedTuple):
    """What monitoring reads beside the totals of a status."""

    triggers: list[TriggerCounts]
    streams: list[StreamStatus]
    other_streams: StreamCounts | None
    scopes: list[ScopeStatus]
    pipelines: list[PipelineStatus]


def series(connection: Connection) -> Series:
    """Return the series at one moment."""
    shown, others = _streams(connection)
    return Series(
        triggers=_triggers(connection),
        streams=shown,
        other_streams=others,
        scopes=scope_list(connection, log_head(connection), limit=MAX_SERIES),
        pipelines=_pipelines(connection),
    )


def _triggers(connection: Connection) -> list[TriggerCounts]:
    declared = (triggers.c.run_id.is_(None), triggers.c.state != "removed")
    columns = [triggers.c[name] for name in _TRIGGER_COUNTS]
    first = connection.execute(select(triggers.c.name, triggers.c.id, *columns).where(*declared).order_by(triggers.c.id).limit(MAX_SERIES))
    rows = first.all()
    found = [TriggerCounts(row.name, *row[2:]) for row in rows]
    if len(rows) == MAX_SERIES:
        sums = [func.coalesce(func.sum(column), 0) for column in columns]
        rest = connection.execute(select(func.count(), *sums).where(*declared, triggers.c.id > rows[-1].id)).one()
        if rest[0]:
            found.append(TriggerCounts(OTHERS, *map(int, rest[1:])))
    return found


def _streams(connection: Connection) -> tuple[list[StreamStatus], StreamCounts | None]:
    first = select(stream_reports.c.stream).distinct().order_by(stream_reports.c.stream).limit(MAX_SERIES)
    names = list(connection.execute(first).scalars())
    if len(names) < MAX_SERIES:
        return streams_named(connection, names), None
    sums = [func.coalesce(func.sum(stream_reports.c[name]), 0).label(name) for name in (*COUNTS, *SECONDS)]
    rest = connection.execute(select(func.count().label("reports"), *sums).where(stream_reports.c.stream > names[-1])).one()
    totals = stream_totals(connection, after=names[-1])
    counts = {name: float(getattr(rest, name)) for name in (*COUNTS, *SECONDS)}
    counts |= {"advanced": float(totals.advanced), "recorded": float(totals.recorded)}
    return streams_named(connection, names), StreamCounts(OTHERS, counts) if rest.reports else None


def _pipelines(connection: Connection) -> list[PipelineStatus]:
    found = pipeline_list(connection, run_totals(connection))
    if len(found) <= MAX_SERIES:
        return found
    rest = found[MAX_SERIES:]
    sums = {name: sum(getattr(one, name) for one in rest) for name in ("runs", "failed", "events", "rows")}
    return [*found[:MAX_SERIES], PipelineStatus(name=OTHERS, on=[], table=None, last_run=None, **sums)]
