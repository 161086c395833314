"""Number the lanes: backlogs and receipts refer to a (stream, lane) by the id of one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, ScalarSelect, bindparam, delete, exists, insert, or_, select, update

from headrace.core.values.shards import SHARD_PATTERN, overlap, whole_name
from headrace.store.dialects.statements import in_list, rows_among
from headrace.store.tables.control import jobs, stream_reports
from headrace.store.tables.custody import backlog, dead_letters, lanes, receipt_problems, recorded_streams
from headrace.wire.control.streams import StreamReport

MAX_STATEMENT_NAMES = 5_000
HOUR = 3_600_000_000  # microseconds
CHECK_INTERVAL_MICROS = 24 * HOUR

# One query per stream: for a list of pairs, SQLite would read every lane.
_known = select(lanes).where(lanes.c.stream == bindparam("of"), in_list(lanes.c.lane, "names"))


@dataclass(slots=True)
class Lane:
    """One lane.

    `after` and `last` are the positions where its recorded range begins and ends, or None if it has no receipt.
    `read` is the number of raw events in that range. `moved` is the time (µs since the epoch) when the range last
    grew, or of the next check for deletion.
    """

    id: int
    after: int | None
    last: int | None
    read: int
    moved: int


def get_or_create_lanes(connection: Connection, pairs: Iterable[tuple[str, str]], now: int) -> dict[tuple[str, str], Lane]:
    """Return the lanes by (stream, lane), inserting the new ones."""
    unique = list(dict.fromkeys(pairs))
    known = _look_up(connection, unique)
    new = [pair for pair in unique if pair not in known]
    if new:
        connection.execute(insert(lanes), [{"stream": stream, "lane": lane, "read": 0, "moved": now} for stream, lane in new])
        known |= _look_up(connection, new)
    return known


def _look_up(connection: Connection, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Lane]:
    of: dict[str, list[str]] = defaultdict(list)
    for stream, lane in pairs:
        of[stream].append(lane)
    known: dict[tuple[str, str], Lane] = {}
    for stream, names in of.items():
        for start in range(0, len(names), MAX_STATEMENT_NAMES):
            for row in connection.execute(_known, {"of": stream, "names": names[start : start + MAX_STATEMENT_NAMES]}):
                known[stream, row.lane] = Lane(row.id, row.after, row.last, row.read, row.moved)
    return known


def stream_of(lane_id: int) -> ScalarSelect[int]:
    """Return a subquery for the id of the lane's stream."""
    of_lane = recorded_streams.c.stream == lanes.c.stream
    return select(recorded_streams.c.id).join(lanes, of_lane).where(lanes.c.id == lane_id).scalar_subquery()


def find_shard_streams(connection: Connection) -> dict[str, set[str]]:
    """Return the recorded streams that may be shards, and the streams that they divide, by the stream key of the whole."""
    streams: dict[str, set[str]] = {}
    for name in connection.execute(select(recorded_streams.c.stream).where(recorded_streams.c.stream.like(SHARD_PATTERN))).scalars():
        whole = whole_name(name)
        streams.setdefault(whole, {whole}).add(name)
    return streams


def recorded_by_other_shards(
    connection: Connection, stream: str, names: Collection[str], streams: Mapping[str, set[str]]
) -> dict[str, int]:
    """Return the last recorded position of each of these lanes in streams with another number of shards. `streams` has the known ones.

    After the number of shards has changed, another stream goes on with a lane.
    """
    last: dict[str, int] = {}
    for other in sorted(streams.get(whole_name(stream), ())):
        if not overlap(stream, other):
            continue
        for row in connection.execute(_known, {"of": other, "names": list(names)}):
            if row.last is not None:
                last[row.lane] = max(row.last, last.get(row.lane, row.last))
    return last


def idle_lanes(connection: Connection, before: int, limit: int) -> int:
    """Delete lanes without a receipt since `before` (µs). Return the number of lanes checked, at most `limit`.

    The counts of a deleted lane are added to its stream. A lane stays while it has a backlog, a dead letter or a
    problem, or while a running job reports it. The next check of such a lane is a day later, so each lane is checked
    at most once per round. Answers that wait for a receipt do not hold a lane, since none comes any more. They are
    deleted before it, up to `limit` of them.
    """
    held = or_(
        exists().where(backlog.c.lane_id == lanes.c.id, backlog.c.answer.is_(None)),
        exists().where(dead_letters.c.stream == lanes.c.stream, dead_letters.c.lane == lanes.c.lane),
        exists().where(receipt_problems.c.lane_id == lanes.c.id),
    )
    query = select(lanes.c.id, lanes.c.stream, lanes.c.lane, lanes.c.read, lanes.c.last, held.label("held"))
    rows = connection.execute(query.where(lanes.c.moved < before).order_by(lanes.c.moved, lanes.c.id).limit(limit)).all()
    free = [row for row in rows if not row.held]
    reported = _reported(connection, {row.stream for row in free})
    removed = [row for row in free if (row.stream, row.lane) not in reported]
    if (early := _delete_early_answers(connection, [row.id for row in removed], limit)) == limit:
        return early  # the next slice goes on with these lanes
    reads: dict[str, list[int]] = defaultdict(list)
    for row in removed:
        if row.last is not None:
            reads[row.stream].append(row.read)
    for stream, counts in reads.items():
        sums = {"read": recorded_streams.c.read + sum(counts), "lanes": recorded_streams.c.lanes + len(counts)}
        connection.execute(update(recorded_streams).where(recorded_streams.c.stream == stream).values(**sums))
    deleted = {row.id for row in removed}
    connection.execute(delete(lanes).where(in_list(lanes.c.id, "ids")), {"ids": sorted(deleted)})
    stay = [row.id for row in rows if row.id not in deleted]
    connection.execute(update(lanes).where(in_list(lanes.c.id, "ids")).values(moved=before + CHECK_INTERVAL_MICROS), {"ids": stay})
    return len(rows)


def _delete_early_answers(connection: Connection, lane_ids: Sequence[int], limit: int) -> int:
    """Delete the answered rows of lanes that wait for a receipt, at most `limit`. Return how many."""
    early = select(backlog.c.number).where(in_list(backlog.c.lane_id, "ids")).limit(limit)
    numbers = list(connection.execute(early, {"ids": list(lane_ids)}).scalars())
    connection.execute(delete(backlog).where(in_list(backlog.c.number, "numbers")), {"numbers": numbers})
    return len(numbers)


def _reported(connection: Connection, streams: set[str]) -> set[tuple[str, str]]:
    """Return the lanes of these streams that running jobs report."""
    query = select(stream_reports.c.stream, stream_reports.c.report).join(jobs, jobs.c.id == stream_reports.c.job_id)
    rows = rows_among(connection, query.where(jobs.c.state == "running", in_list(stream_reports.c.stream, "names")), "names", streams)
    return {(row.stream, lane.lane) for row in rows for lane in StreamReport.model_validate_json(row.report).lanes}
