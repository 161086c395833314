"""Reports of jobs about their streams: the last report of each job and stream, retained after the job so that sums never shrink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, tuple_

from headrace.core.ledger.counters import COUNTER_HELP, StreamCounters
from headrace.store.tables.control import stream_reports
from headrace.wire.control.streams import StreamReport


def save_reports(connection: Connection, job_id: int, reports: Sequence[StreamReport], now: int) -> None:
    """Replace the job's reports of these streams."""
    if not reports:
        return
    newest = {report.stream: report for report in reports}
    previous = tuple_(stream_reports.c.job_id, stream_reports.c.stream).in_([(job_id, stream) for stream in newest])
    connection.execute(delete(stream_reports).where(previous))
    connection.execute(
        insert(stream_reports),
        [
            {
                "job_id": job_id,
                "stream": stream,
                "state": report.state,
                "outstanding": report.outstanding,
                **counter_columns(report.counters),
                "report": report.model_dump_json(exclude={"counters"}),
                "updated": now,
            }
            for stream, report in newest.items()
        ],
    )


def counter_columns(counters: StreamCounters) -> dict[str, Any]:
    """Return the columns for these counters: all that are not 0 as JSON, and `read` and `advanced` on their own."""
    stored = {name: value for name, value in asdict(counters).items() if value}
    return {"counters": stored, "read": counters.read, "advanced": counters.advanced}


def sum_counters(stored: Iterable[Mapping[str, float]]) -> StreamCounters:
    """Return the sums of stored counters. Counters that are missing are 0, and those of another version are ignored."""
    rows = list(stored)
    sums: dict[str, Any] = {name: sum(row.get(name, 0) for row in rows) for name in COUNTER_HELP}
    return StreamCounters(**sums)


def counter_sum(name: str) -> ColumnElement[float]:
    """Return the SQL sum of one counter over many reports."""
    return func.coalesce(func.sum(stream_reports.c.counters[name].as_float()), 0)
