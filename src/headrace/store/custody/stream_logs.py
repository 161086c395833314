"""Detect a restored database: compare an upstream's log mark with the receipts of its stream.

`headrace.triggers.stream_log` describes the mark that an upstream stores. An operator can adopt a stream whose mark
belongs to another log.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, insert, select, update

from headrace.core.values.moments import moment
from headrace.errors import ApiRefused
from headrace.store.control.jobs import require_running
from headrace.store.custody.seeks import pending_seek
from headrace.store.custody.subscriber_sets import streams_of
from headrace.store.db.database import Database
from headrace.store.db.meta import own_log
from headrace.store.tables.custody import adopted_streams, recorded_streams
from headrace.wire.base import rfc3339
from headrace.wire.custody.receipts import LaneAudit, LogMark, ReceiptCount, StreamAdopted

_marks = select(adopted_streams.c.log, adopted_streams.c.receipts).where(adopted_streams.c.missing.is_(None))


class StreamLogs:
    """Count the receipts of the streams of one database, and adopt streams."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def count_receipts(self, job_id: int, stream: str) -> ReceiptCount:
        """Return the id of this event log, the number of its receipts of the stream, and the seek that is pending.

        Raises:
            Fenced: The job has ended.
        """
        with self._database.reading() as connection:
            require_running(connection, job_id)
            seek = pending_seek(connection, stream, self._database.now())
            row = connection.execute(select(recorded_streams).where(recorded_streams.c.stream == stream)).one_or_none()
            if row is None:
                return ReceiptCount(log=own_log(connection), receipts=0, seek=seek)
            last = _marks.where(adopted_streams.c.stream_id == row.id).order_by(adopted_streams.c.id.desc()).limit(1)
            mark = connection.execute(last).one_or_none()
            adopted = None if mark is None else LogMark(log=mark.log, stream=stream, receipts=mark.receipts)
            return ReceiptCount(log=own_log(connection), receipts=row.receipts, adopted=adopted, seek=seek)

    def adopt(self, mark: LogMark) -> StreamAdopted:
        """Adopt the stream whose upstream has this mark.

        Raises:
            ApiRefused: The mark is of this log, and no receipt is missing.
        """
        return self._database.write(lambda connection: _adopt(connection, mark, self._database.now()))


def _adopt(connection: Connection, mark: LogMark, now: int) -> StreamAdopted:
    (stream_id,) = streams_of(connection, [mark.stream]).values()
    missing = None
    if mark.log == own_log(connection):
        stored = connection.execute(select(recorded_streams.c.receipts).where(recorded_streams.c.id == stream_id)).scalar_one()
        missing = mark.receipts - stored
        if missing <= 0:
            raise ApiRefused(
                f"There is nothing to adopt: this event log has {stored} receipts of {mark.stream}.",
                hint="Is the command the one that the stream's error names?",
                status=409,
                problem="conflict",
            )
        # One more than the lost database had. If that one returns, the numbers differ.
        counted = update(recorded_streams).where(recorded_streams.c.id == stream_id).values(receipts=mark.receipts + 1)
        connection.execute(counted)
    row = {"stream_id": stream_id, "at": now, "log": mark.log, "receipts": mark.receipts, "missing": missing}
    connection.execute(insert(adopted_streams).values(**row))
    return StreamAdopted(missing=missing)


def adopted_without(connection: Connection, stream: str | None) -> Iterator[tuple[str, LaneAudit]]:
    """Yield a problem for each adopted stream whose receipts were lost when the database was restored."""
    query = (
        select(recorded_streams.c.stream, adopted_streams)
        .join(recorded_streams, recorded_streams.c.id == adopted_streams.c.stream_id)
        .where(adopted_streams.c.missing.is_not(None))
        .order_by(adopted_streams.c.id)
    )
    if stream is not None:
        query = query.where(recorded_streams.c.stream == stream)
    for row in connection.execute(query):
        what = (
            f"{row.missing} receipts, up to receipt {row.receipts}, are missing since the database was restored: "
            f"their raw events were read before {rfc3339(moment(row.at))}, when the stream was adopted"
        )
        yield row.stream, LaneAudit(lane="", recorded=None, committed=None, problem=what)
