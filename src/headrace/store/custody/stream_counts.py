"""How many raw events streams read and advanced: from the books of custody, which a killed process does not take with it.

What is recorded has been read and answered, and is advanced or about to be. A job's heartbeats say only what is under way beyond that. A
stream without books, such as one that is not advanced, is counted by the heartbeats of its jobs.
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
_booked = select(_sum(subscriber_sets.c.read))
_after = bindparam("after", type_=Text)
_booked_after = _booked.join(recorded_streams, subscriber_sets.c.stream_id == recorded_streams.c.id).where(
    recorded_streams.c.stream > _after
)
_report = stream_reports.c
_has_books = recorded_streams.c.id.is_not(None)
_is_under_way = and_(_report.read > _report.advanced, _has_books, jobs.c.state == "running")
_reported = (
    select(
        _sum(case((_is_under_way, _report.read - _report.advanced), else_=0)),
        _sum(case((_has_books, 0), else_=_report.read)),
        _sum(case((_has_books, 0), else_=_report.advanced)),
    )
    .select_from(stream_reports)
    .outerjoin(recorded_streams, recorded_streams.c.stream == _report.stream)
    .outerjoin(jobs, jobs.c.id == _report.job_id)
    .where(_report.stream > _after)
)


class StreamTotals(NamedTuple):
    """The sums of several streams; `recorded` never goes down."""

    read: int
    advanced: int
    recorded: int


def recorded_by_stream(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Return how many raw events the books count as read, of those of these streams that have books."""
    found = connection.execute(_recorded, {"names": list(names)})
    return {row[0]: int(row[1]) for row in found}


def stream_totals(connection: Connection, *, after: str = "") -> StreamTotals:
    """Return the sums of all streams, or of those whose names come after the one given."""
    books = int(connection.execute(_booked_after if after else _booked, {"after": after}).scalar_one())
    more, read, advanced = map(int, connection.execute(_reported, {"after": after}).one())
    return StreamTotals(read=books + more + read, advanced=books + advanced, recorded=books + read)
