"""Lanes by number: what the backlog and the ledger of custody say of a (stream, lane) hangs on one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, ScalarSelect, bindparam, delete, exists, insert, or_, select, update

from headrace.store.dialects.statements import in_list, rows_among
from headrace.store.tables.control import jobs, stream_reports
from headrace.store.tables.custody import backlog, dead_letters, lanes, receipt_problems, recorded_streams
from headrace.wire.control.streams import StreamReport

MOST_NAMES = 5_000
HOUR = 3_600_000_000  # microseconds
LOOK_AGAIN = 24 * HOUR

# Stream by stream: SQLite would look at every lane for a list of pairs.
_known = select(lanes).where(lanes.c.stream == bindparam("of"), in_list(lanes.c.lane, "names"))


@dataclass(slots=True)
class Lane:
    """One lane; `last` is how far its custody is recorded (None: nothing is), `after` where that begins, `moved` when it last went on."""

    id: int
    after: int | None
    last: int | None
    read: int
    moved: int


def lanes_of(connection: Connection, pairs: Iterable[tuple[str, str]], now: int) -> dict[tuple[str, str], Lane]:
    """Return the lanes by (stream, lane), making those that are new."""
    wanted = list(dict.fromkeys(pairs))
    found = _look_up(connection, wanted)
    new = [pair for pair in wanted if pair not in found]
    if new:
        connection.execute(insert(lanes), [{"stream": stream, "lane": lane, "read": 0, "moved": now} for stream, lane in new])
        found |= _look_up(connection, new)
    return found


def _look_up(connection: Connection, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Lane]:
    of: dict[str, list[str]] = defaultdict(list)
    for stream, lane in pairs:
        of[stream].append(lane)
    found: dict[tuple[str, str], Lane] = {}
    for stream, names in of.items():
        for start in range(0, len(names), MOST_NAMES):
            for row in connection.execute(_known, {"of": stream, "names": names[start : start + MOST_NAMES]}):
                found[stream, row.lane] = Lane(row.id, row.after, row.last, row.read, row.moved)
    return found


def stream_of(lane_id: int) -> ScalarSelect[int]:
    """Return the id, in the books, of the stream that a lane is of."""
    of_lane = recorded_streams.c.stream == lanes.c.stream
    return select(recorded_streams.c.id).join(lanes, of_lane).where(lanes.c.id == lane_id).scalar_subquery()


def idle_lanes(connection: Connection, before: int, most: int) -> int:
    """Forget lanes that have not gone on since `before` (microseconds), and add them to the sums of their streams.

    A lane stays while anything of it is kept in a backlog or as a dead letter, while it has a problem, and while a job reports it. One
    that stays is looked at again a day later: however many stay, each is looked at once in a round.
    """
    held = or_(
        exists().where(backlog.c.lane_id == lanes.c.id),
        exists().where(dead_letters.c.stream == lanes.c.stream, dead_letters.c.lane == lanes.c.lane),
        exists().where(receipt_problems.c.lane_id == lanes.c.id),
    )
    query = select(lanes.c.id, lanes.c.stream, lanes.c.lane, lanes.c.read, lanes.c.last, held.label("held"))
    found = connection.execute(query.where(lanes.c.moved < before).order_by(lanes.c.moved, lanes.c.id).limit(most)).all()
    free = [row for row in found if not row.held]
    reported = _reported(connection, {row.stream for row in free})
    gone = [row for row in free if (row.stream, row.lane) not in reported]
    reads: dict[str, list[int]] = defaultdict(list)
    for row in gone:
        if row.last is not None:
            reads[row.stream].append(row.read)
    for stream, counts in reads.items():
        sums = {"read": recorded_streams.c.read + sum(counts), "lanes": recorded_streams.c.lanes + len(counts)}
        connection.execute(update(recorded_streams).where(recorded_streams.c.stream == stream).values(**sums))
    deleted = {row.id for row in gone}
    connection.execute(delete(lanes).where(in_list(lanes.c.id, "ids")), {"ids": sorted(deleted)})
    stay = [row.id for row in found if row.id not in deleted]
    connection.execute(update(lanes).where(in_list(lanes.c.id, "ids")).values(moved=before + LOOK_AGAIN), {"ids": stay})
    return len(found)


def _reported(connection: Connection, streams: set[str]) -> set[tuple[str, str]]:
    """Return the lanes that running jobs report of these streams."""
    told = select(stream_reports.c.stream, stream_reports.c.report).join(jobs, jobs.c.id == stream_reports.c.job_id)
    rows = rows_among(connection, told.where(jobs.c.state == "running", in_list(stream_reports.c.stream, "names")), "names", streams)
    return {(row.stream, lane.lane) for row in rows for lane in StreamReport.model_validate_json(row.report).lanes}
