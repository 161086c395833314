"""Count the raw events that streams read and advanced.

The counts come from receipts, so they survive a killed process. A recorded raw event was read and answered, and is
advanced or about to be. Heartbeats of a job add only the raw events in flight. A stream without receipts, such as one
that is not advanced, is counted by the heartbeats of its jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Text, and_, bindparam, case, func, select

from headrace.store.tables.control import jobs, stream_reports
from headrace.store.tables.custody import recorded_streams, subscriber_sets


def _sum(value: ColumnElement[Any]) -> ColumnElement[int]:
    return func.coalesce(func.sum(value), 0)


_recorded = (
    select(recorded_streams.c.stream, _sum(subscriber_sets.c.read))
    .outerjoin(subscriber_sets, subscriber_sets.c.stream_id == recorded_streams.c.id)
    .where(recorded_streams.c.stream.in_(bindparam("names", expanding=True)))
    .group_by(recorded_streams.c.stream)
)
_counted = select(_sum(subscriber_sets.c.read))
_after = bindparam("after", type_=Text)
_counted_after = _counted.join(recorded_streams, subscriber_sets.c.stream_id == recorded_streams.c.id).where(
    recorded_streams.c.stream > _after
)
_report = stream_reports.c
_has_receipts = recorded_streams.c.id.is_not(None)
_is_in_flight = and_(_report.read > _report.advanced, _has_receipts, jobs.c.state == "running")
_reported = (
    select(
        _sum(case((_is_in_flight, _report.read - _report.advanced), else_=0)),
        _sum(case((_has_receipts, 0), else_=_report.read)),
        _sum(case((_has_receipts, 0), else_=_report.advanced)),
    )
    .select_from(stream_reports)
    .outerjoin(recorded_streams, recorded_streams.c.stream == _report.stream)
    .outerjoin(jobs, jobs.c.id == _report.job_id)
    .where(_report.stream > _after)
)


class StreamTotals(NamedTuple):
    """The totals of several streams. `recorded` never decreases."""

    read: int
    advanced: int
    recorded: int


def recorded_by_stream(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Return the number of raw events read according to receipts, for the streams that have any."""
    rows = connection.execute(_recorded, {"names": list(names)})
    return {row[0]: int(row[1]) for row in rows}


def stream_totals(connection: Connection, *, after: str = "") -> StreamTotals:
    """Return the totals of all streams whose name sorts after `after`."""
    counted = int(connection.execute(_counted_after if after else _counted, {"after": after}).scalar_one())
    more, read, advanced = map(int, connection.execute(_reported, {"after": after}).one())
    return StreamTotals(read=counted + more + read, advanced=counted + advanced, recorded=counted + read)
