"""How many raw events streams read and advanced: from the books of custody, which a killed process does not take with it.

What is recorded has been read and answered, and is advanced or about to be. A job's heartbeats say only what is under way beyond that. A
stream without books, such as one that is not advanced, is counted by the heartbeats of its jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, and_, case, func, select

from headrace.store.tables.base import crews, custody_streams, jobs, stream_reports


class StreamTotals(NamedTuple):
    """The sums of several streams; `recorded` never goes down."""

    read: int
    advanced: int
    recorded: int


def recorded_by_stream(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Return how many raw events the books count as read, of those of these streams that have books."""
    joined = select(custody_streams.c.stream, func.coalesce(func.sum(crews.c.read), 0)).outerjoin(
        crews, crews.c.stream_id == custody_streams.c.id
    )
    found = connection.execute(joined.where(custody_streams.c.stream.in_(names)).group_by(custody_streams.c.stream))
    return {row[0]: int(row[1]) for row in found}


def stream_totals(connection: Connection, *, after: str = "") -> StreamTotals:
    """Return the sums of all streams, or of those whose names come after the one given."""
    booked = select(func.coalesce(func.sum(crews.c.read), 0)).select_from(crews)
    if after:
        booked = booked.join(custody_streams, crews.c.stream_id == custody_streams.c.id).where(custody_streams.c.stream > after)
    books = int(connection.execute(booked).scalar_one())
    has_books, running = custody_streams.c.id.is_not(None), jobs.c.state == "running"
    report = stream_reports.c
    under_way = case((and_(has_books, running, report.read > report.advanced), report.read - report.advanced), else_=0)
    reported = [case((has_books, 0), else_=column) for column in (report.read, report.advanced)]
    sums = select(*(func.coalesce(func.sum(column), 0) for column in (under_way, *reported)))
    joined = sums.select_from(stream_reports).outerjoin(custody_streams, custody_streams.c.stream == report.stream)
    joined = joined.outerjoin(jobs, jobs.c.id == report.job_id)
    more, read, advanced = map(int, connection.execute(joined.where(report.stream > after)).one())
    return StreamTotals(read=books + more + read, advanced=books + advanced, recorded=books + read)
