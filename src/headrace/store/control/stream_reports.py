"""What each job says of its streams: the last report of each (job, stream), kept after the job's end so that totals never shrink."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, tuple_

from headrace.store.tables.control import stream_reports
from headrace.wire.control.streams import StreamReport

COUNTS = ("read", "advanced", "outstanding", "rejected", "filtered", "failed", "spilled", "resolved", "advances", "advance_errors")
SECONDS = ("ack_seconds", "advance_seconds")


def keep(connection: Connection, job_id: int, reports: Sequence[StreamReport], now: int) -> None:
    """Keep the job's newest report of each stream."""
    if not reports:
        return
    newest = {report.stream: report for report in reports}
    mine = tuple_(stream_reports.c.job_id, stream_reports.c.stream).in_([(job_id, stream) for stream in newest])
    connection.execute(delete(stream_reports).where(mine))
    connection.execute(
        insert(stream_reports),
        [
            {"job_id": job_id, "stream": stream, "state": report.state, "report": report.model_dump_json(), "updated": now}
            | {name: getattr(report, name) for name in COUNTS + SECONDS}
            for stream, report in newest.items()
        ],
    )
