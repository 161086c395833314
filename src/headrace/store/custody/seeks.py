"""Seeks: an operator plans another position of lanes, and the triggerer that opens the stream next moves them.

Invariants:
- A triggerer records the position before and after each lane (`begin`), then moves the lane at the upstream, then
  records that it is moved (`finish`). The first recorded positions count, so that a triggerer that was killed in
  between is followed by one that moves the lane to the same position.
- `begin` extends the recorded range of a lane up to a later position. So the next receipt is adjacent, and the seek
  names the positions that nothing was read of. An earlier position changes no range: messages that are
  read again are redeliveries.
- A stream has at most one seek that is planned. A later plan replaces it, unless a triggerer is moving lanes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection, and_, delete, func, insert, not_, or_, select, update

from headrace.core.values.moments import moment
from headrace.errors import ApiRefused, Fenced
from headrace.store.control import leases
from headrace.store.control.jobs import require_running
from headrace.store.custody.lanes import get_or_create_lanes
from headrace.store.custody.spills import position_key
from headrace.store.db.database import Database
from headrace.store.db.slices import size_of, take_slice
from headrace.store.dialects.statements import ResultRow, in_list, rows_among
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import backlog, lanes, stream_seeks
from headrace.wire.custody.seeks import (
    EXPIRY_SECONDS,
    BeginSeek,
    FinishSeek,
    LanePosition,
    LaneSeek,
    PendingSeek,
    PlanSeek,
    SeekBegun,
    SeekLane,
    SeekList,
    SeekState,
    SeekStatus,
)

MOVABLE: Final = ("kafka:", "nats:", "redis:")
"""Prefixes of the streams whose producers carry out seeks."""
UNCOUNTED: Final = ("redis:",)
"""Prefixes of streams whose positions are made of times. The size of a range does not count messages."""
MICROS: Final = 1_000_000
MAX_AUDITED: Final = 1_000
"""Ranges of one stream that the audit names, the newest first."""

_declared = (
    select(triggers.c.stream, func.count().label("number"))
    .where(triggers.c.state != "removed", in_list(triggers.c.stream, "names"))
    .group_by(triggers.c.stream)
)
_held = select(triggers.c.id, triggers.c.job_id).where(
    in_list(triggers.c.stream, "names"), triggers.c.job_id.is_not(None), triggers.c.revoked_job_id.is_(None)
)


class LaneRow(msgspec.Struct, omit_defaults=True):
    """One lane of a seek, as it is stored. Times are in microseconds since the epoch."""

    lane: str
    position: int
    previous: int | None = None
    begun: int | None = None
    moved: bool = False
    forward: bool = False


class StreamSeeks:
    """Plan, carry out and list the seeks of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def plan(self, plan: PlanSeek, who: str) -> SeekList:
        """Plan the seek of all streams, and request their triggers from the jobs that hold them. The same plan is planned once.

        Raises:
            ApiRefused: No trigger reads one of the streams, its upstream has no position to move, or a seek is being carried out.
        """
        names = self._database.write(lambda connection: _plan(connection, plan, who, self._database.now()))
        with self._database.reading() as connection:
            held: dict[int, list[int]] = defaultdict(list)
            for row in rows_among(connection, _held, "names", names):
                held[row.job_id].append(row.id)
        for job_id, trigger_ids in held.items():
            for start in range(0, len(trigger_ids), leases.MAX_CHANGED_LEASES):
                part = trigger_ids[start : start + leases.MAX_CHANGED_LEASES]
                self._database.write(partial(leases.request_release, job_id=job_id, trigger_ids=part))
        with self._database.reading() as connection:
            return seek_list(connection, self._database.now(), plan=plan.plan, limit=len(plan.streams))

    def begin(self, job_id: int, begin: BeginSeek) -> SeekBegun:
        """Record the lanes that the job moves. Return the lanes to move, with the positions that count.

        Raises:
            Fenced: The job has ended, or does not hold the stream.
        """
        return self._database.write(lambda connection: _begin(connection, job_id, begin, self._database.now()))

    def finish(self, job_id: int, finish: FinishSeek) -> None:
        """Record that the upstream has stored the positions of lanes.

        Raises:
            Fenced: The job has ended, or does not hold the stream.
        """
        self._database.write(lambda connection: _finish(connection, job_id, finish))


def pending_seek(connection: Connection, stream: str, now: int) -> PendingSeek | None:
    """Return the planned seek of a stream with the lanes that are not moved, or None."""
    row = _planned(connection, stream)
    if row is None:
        return None
    left = [LanePosition(lane=one.lane, position=one.position) for one in _lanes(row) if _is_due(one, row, now)]
    return PendingSeek(id=row.id, lanes=left) if left else None


def seek_list(connection: Connection, now: int, *, limit: int, plan: str | None = None) -> SeekList:
    """Return the seeks of all streams, or of one plan, the newest first."""
    query = select(stream_seeks).order_by(stream_seeks.c.id.desc()).limit(limit)
    if plan is not None:
        query = query.where(stream_seeks.c.plan == plan)
    return SeekList(seeks=[_status(row, now) for row in connection.execute(query)])


def moved_ranges(connection: Connection, stream: str | None) -> dict[str, list[LaneSeek]]:
    """Return the ranges of positions that were skipped or read again, by stream, the newest first."""
    query = select(stream_seeks).order_by(stream_seeks.c.id.desc())
    if stream is not None:
        query = query.where(stream_seeks.c.stream == stream)
    ranges: dict[str, list[LaneSeek]] = defaultdict(list)
    for row in connection.execute(query):
        listed = ranges[row.stream]
        listed += list(_ranges(row))[: MAX_AUDITED - len(listed)]
    return {name: listed for name, listed in ranges.items() if listed}


def old_seeks(connection: Connection, before: int, limit: int) -> int:
    """Delete seeks that are done, replaced or expired. The audit then no longer names their ranges. One that moves lanes stays."""
    is_over = or_(stream_seeks.c.state != "planned", and_(stream_seeks.c.expires < before, not_(stream_seeks.c.lanes.contains('"begun"'))))
    query = select(stream_seeks.c.id, size_of(stream_seeks.c.lanes)).where(stream_seeks.c.planned < before, is_over)
    old = take_slice(connection, query.order_by(stream_seeks.c.id), limit)
    connection.execute(delete(stream_seeks).where(stream_seeks.c.id.in_([row.id for row in old.rows])))
    return len(old.rows)


def _plan(connection: Connection, plan: PlanSeek, who: str, now: int) -> Sequence[str]:
    """Store the plan. Return the streams whose seek is still planned."""
    known = connection.execute(select(stream_seeks.c.stream, stream_seeks.c.state).where(stream_seeks.c.plan == plan.plan)).all()
    if known:
        return [row.stream for row in known if row.state == "planned"]
    names = [one.stream for one in plan.streams]
    declared = {row.stream for row in rows_among(connection, _declared, "names", names)}
    if len(set(names)) != len(names):
        raise ApiRefused("The plan names a stream twice.", status=422, problem="invalid")
    for one in plan.streams:
        if not one.stream.startswith(MOVABLE):
            raise ApiRefused(f"The upstream {one.stream} cannot seek: no position of it can be moved.", status=422, problem="invalid")
        if len({lane.lane for lane in one.lanes}) != len(one.lanes):
            raise ApiRefused(f"The plan names a lane of {one.stream} twice.", status=422, problem="invalid")
        if one.stream not in declared:
            raise ApiRefused(
                f"No trigger reads the upstream {one.stream}.",
                hint="Start a triggerer of the project once. See: headrace upstreams list",
                status=404,
                problem="not-found",
            )
        _replace(connection, one.stream, now)
    expires = now + EXPIRY_SECONDS * MICROS
    common = {"plan": plan.plan, "state": "planned", "target": plan.target, "who": who, "planned": now, "expires": expires}
    rows = [
        common | {"stream": one.stream, "lanes": _text([LaneRow(lane.lane, lane.position, forward=lane.forward) for lane in one.lanes])}
        for one in plan.streams
    ]
    connection.execute(insert(stream_seeks), rows)
    return names


def _replace(connection: Connection, stream: str, now: int) -> None:
    row = _planned(connection, stream)
    if row is None:
        return
    if now < row.expires and any(one.begun is not None and not one.moved for one in _lanes(row)):
        raise ApiRefused(
            f"A triggerer is carrying out seek {row.id} of {stream} now.",
            hint="Repeat the command when it is done. See: headrace upstreams seeks",
            status=409,
            problem="conflict",
        )
    connection.execute(update(stream_seeks).where(stream_seeks.c.id == row.id).values(state="replaced"))


def _begin(connection: Connection, job_id: int, begin: BeginSeek, now: int) -> SeekBegun:
    _require_stream(connection, job_id, begin.stream)
    row = _planned(connection, begin.stream)
    if row is None or row.id != begin.seek:
        return SeekBegun(lanes=[])
    moves = {one.lane: one for one in begin.lanes}
    stored = _lanes(row)
    positions: list[LanePosition] = []
    begun: list[LaneRow] = []
    for lane in stored:
        if lane.lane not in moves or not _is_due(lane, row, now):
            continue
        if lane.begun is None:
            move = moves[lane.lane]
            lane.previous, lane.begun = move.previous, now
            lane.position = max(move.position, move.previous or 0) if lane.forward else move.position
            begun.append(lane)
        positions.append(LanePosition(lane=lane.lane, position=lane.position))
    if begun:
        connection.execute(update(stream_seeks).where(stream_seeks.c.id == row.id).values(lanes=_text(stored)))
        _skip(connection, begin.stream, begun, now)
    return SeekBegun(lanes=positions)


def _skip(connection: Connection, stream: str, moves: Sequence[LaneRow], now: int) -> None:
    """Extend the recorded ranges of lanes up to a later position. A lane without receipts has none to extend."""
    known = get_or_create_lanes(connection, ((stream, move.lane) for move in moves), now)
    for move in moves:
        lane = known[stream, move.lane]
        if lane.last is None or move.position - 1 <= lane.last:
            continue
        connection.execute(update(lanes).where(lanes.c.id == lane.id).values(last=move.position - 1, moved=now))
        # No receipt will cover the answers to spilled raw events of the range, so that nothing waits for it.
        in_range = (backlog.c.key > position_key(lane.last), backlog.c.key < position_key(move.position))
        connection.execute(delete(backlog).where(backlog.c.lane_id == lane.id, *in_range, backlog.c.answer.is_not(None)))


def _finish(connection: Connection, job_id: int, finish: FinishSeek) -> None:
    _require_stream(connection, job_id, finish.stream)
    row = _planned(connection, finish.stream)
    if row is None or row.id != finish.seek:
        return
    stored, names = _lanes(row), set(finish.lanes)
    for lane in stored:
        lane.moved = lane.moved or (lane.begun is not None and lane.lane in names)
    state = "done" if all(lane.moved for lane in stored) else "planned"
    connection.execute(update(stream_seeks).where(stream_seeks.c.id == row.id).values(lanes=_text(stored), state=state))


def _require_stream(connection: Connection, job_id: int, stream: str) -> None:
    """Raise `Fenced` unless the job holds a trigger of the stream: all of them are leased together."""
    require_running(connection, job_id)
    held = select(triggers.c.id).where(triggers.c.stream == stream, triggers.c.job_id == job_id).limit(1)
    if connection.execute(held).first() is None:
        raise Fenced(f"Job {job_id} does not hold the stream {stream}.", status=409, problem="fenced")


def _planned(connection: Connection, stream: str) -> ResultRow | None:
    query = select(stream_seeks).where(stream_seeks.c.stream == stream).order_by(stream_seeks.c.id.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return row if row is not None and row.state == "planned" else None


def _is_due(lane: LaneRow, row: ResultRow, now: int) -> bool:
    """Return whether a lane must move. One that was begun is moved, also after the plan has expired."""
    return not lane.moved and (lane.begun is not None or now < row.expires)


def _status(row: ResultRow, now: int) -> SeekStatus:
    stored = _lanes(row)
    ranges = list(_ranges(row))
    return SeekStatus(
        id=row.id,
        plan=row.plan,
        stream=row.stream,
        state=_state(row, stored, now),
        target=row.target,
        who=row.who,
        planned=moment(row.planned),
        expires=moment(row.expires),
        lanes=[
            SeekLane(
                lane=one.lane,
                position=one.position,
                previous=one.previous,
                begun=None if one.begun is None else moment(one.begun),
                moved=one.moved,
            )
            for one in stored
        ],
        skipped=_size(row.stream, ranges, "skipped"),
        read_again=_size(row.stream, ranges, "read again"),
    )


def _state(row: ResultRow, stored: Sequence[LaneRow], now: int) -> SeekState:
    if row.state != "planned":
        return "done" if row.state == "done" else "replaced"
    if any(lane.begun is not None and not lane.moved for lane in stored):
        return "moving"
    if now >= row.expires:
        return "expired"
    return "moving" if any(lane.moved for lane in stored) else "planned"


def _ranges(row: ResultRow) -> Iterator[LaneSeek]:
    """Yield the ranges between the positions before and after, of lanes that were begun."""
    for one in _lanes(row):
        if one.begun is None or one.previous is None or one.previous == one.position:
            continue
        first, last = sorted((one.previous, one.position))
        what = "skipped" if one.position > one.previous else "read again"
        yield LaneSeek.model_validate(
            {"lane": one.lane, "what": what, "first": first, "last": last - 1, "who": row.who, "at": moment(one.begun)}
        )


def _size(stream: str, ranges: Sequence[LaneSeek], what: str) -> int | None:
    return None if stream.startswith(UNCOUNTED) else sum(one.last - one.first + 1 for one in ranges if one.what == what)


def _lanes(row: ResultRow) -> list[LaneRow]:
    return msgspec.json.decode(row.lanes, type=list[LaneRow])


def _text(stored: Sequence[LaneRow]) -> str:
    return msgspec.json.encode(stored).decode()
