"""Reports of jobs about their streams: the last report of each job and stream, retained after the job so that sums never shrink.

The samples of watches in a heartbeat are stored by trigger: the newest of each counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, tuple_

from headrace.core.ledger.counters import COUNTER_HELP, StreamCounters
from headrace.store.tables.control import stream_reports, triggers, watch_samples
from headrace.wire.control.streams import StreamReport, WatchSample


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


def save_samples(connection: Connection, job_id: int, samples: Sequence[WatchSample], now: int) -> None:
    """Replace the samples of these watches, as far as the job holds them."""
    if not samples:
        return
    newest = {sample.trigger_id: sample for sample in samples}
    held = select(triggers.c.id).where(triggers.c.id.in_(newest), triggers.c.job_id == job_id)
    ids = list(connection.execute(held).scalars())
    connection.execute(delete(watch_samples).where(watch_samples.c.trigger_id.in_(ids)))
    rows = [
        {
            "trigger_id": id,
            "samples": newest[id].samples,
            "matched": newest[id].matched,
            "leaves": msgspec.json.encode([[one.path, one.failed] for one in newest[id].leaves]).decode(),
            "updated": now,
        }
        for id in ids
    ]
    if rows:
        connection.execute(insert(watch_samples), rows)


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
