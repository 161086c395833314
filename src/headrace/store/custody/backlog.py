"""The backlog as its triggerer sees it: read in the order of keeping, and settled.

The law: what is settled goes, and is never read again. A row whose stretch of the lane has no receipt yet leaves its answer behind (a
row without a raw text) until the receipt comes: a redelivery of the same raw event is then known for one that is answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, case, delete, or_, select, update

from headrace.errors import ApiRefused, Fenced
from headrace.store.control import leases
from headrace.store.control.jobs import require_running
from headrace.store.custody.lanes import stream_of
from headrace.store.db.database import Database
from headrace.store.db.slices import Slice, size_of, take_slice
from headrace.store.dead_letters.dead_letters import Redriven, Settlement, settle_redriven
from headrace.store.dead_letters.texts import LETTER_BYTES
from headrace.store.dialects.statements import LITTLE_BY_LITTLE, in_list
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import backlog, custody, lanes, spills
from headrace.wire.custody.backlog import Answer, BacklogItem, BacklogPage, SettleBacklog

MOST_ITEMS = 2_000
MOST_BYTES = 8 * 1024 * 1024
MOST_NUMBERS = 10_000
MOST_TRIGGERS = 500
DROPPED_AT_ONCE = 500
DROPPED: Final = "dropped"
"""The answer to what was dropped from a backlog; triggers do not give it."""

_COLUMNS = (backlog.c.number, lanes.c.stream, lanes.c.lane, backlog.c.position, spills.c.raw)
_waiting = (
    select(*_COLUMNS)
    .join(lanes, lanes.c.id == backlog.c.lane_id)
    .join(spills, spills.c.id == backlog.c.spill_id)
    .where(backlog.c.trigger_id == bindparam("trigger"), backlog.c.number > bindparam("after"), backlog.c.answer.is_(None))
    .order_by(backlog.c.number)
)
_size = size_of(spills.c.raw, plus=case((backlog.c.letter_id.is_not(None), LETTER_BYTES), else_=0))
_kept = select(backlog, lanes.c.last).join(lanes, lanes.c.id == backlog.c.lane_id).where(backlog.c.answer.is_(None))
_sized = _kept.add_columns(_size).outerjoin(spills, spills.c.id == backlog.c.spill_id)
_remove = delete(backlog).where(in_list(backlog.c.number, "numbers"))
_leave_answer = update(backlog).where(backlog.c.number == bindparam("n")).values(answer=bindparam("given"), spill_id=None)
# The last reference goes with its row: a change would write the whole text once more.
_drop_spills = delete(spills).where(in_list(spills.c.id, "ids"), spills.c.refs <= 1)
_unref = update(spills).where(in_list(spills.c.id, "ids")).values(refs=spills.c.refs - 1)

Found = Row[*tuple[Any, ...]]


class Backlog:
    """The backlogs of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, job_id: int, trigger_id: int, *, after: int, limit: int) -> BacklogPage:
        """Return what is kept for a trigger that the job holds, with number > `after`; fewer than `limit` where the texts are large.

        A page is empty only when nothing is left.
        """
        with self._database.reading() as connection:
            require_running(connection, job_id)
            held = select(triggers.c.job_id, triggers.c.backlog).where(triggers.c.id == trigger_id)
            row = connection.execute(held).one_or_none()
            if row is None or row.job_id != job_id:
                raise Fenced(f"Job {job_id} does not hold trigger {trigger_id}.", status=409, problem="fenced")
            items: list[BacklogItem] = []
            size = 0
            most = _waiting.limit(min(limit, MOST_ITEMS))
            with connection.execute(most, {"trigger": trigger_id, "after": after}, execution_options=LITTLE_BY_LITTLE) as found:
                for kept in found:
                    size += len(kept.raw)
                    if items and size > MOST_BYTES:
                        break
                    items.append(BacklogItem(**kept._asdict()))
        return BacklogPage(items=items, depth=row.backlog)

    def drop(self, trigger_id: int) -> int:
        """Drop all that is kept for a trigger, a bounded number in each commit; return how much.

        Raises:
            ApiRefused: There is no such trigger.
        """
        with self._database.reading() as connection:
            if connection.execute(select(triggers.c.id).where(triggers.c.id == trigger_id)).first() is None:
                raise ApiRefused(f"No trigger has the id {trigger_id}.", hint="See: headrace triggers", status=404, problem="not-found")
        dropped = 0
        while more := self._database.write(lambda connection: drop(connection, trigger_id, DROPPED_AT_ONCE, self._database.now())):
            dropped += more
        return dropped

    def settle(self, job_id: int, trigger_id: int, settled: SettleBacklog) -> None:
        """Record how kept raw events were answered, one slice in each commit; one that is gone already changes nothing."""
        left: dict[int, Answer] = {one.number: one.answer for one in settled.settled}
        last: int | None = None
        while last is None or left:
            last = self._database.write(partial(_settle, job_id, trigger_id, settled.epoch, left, self._database.now()))
            left = {number: answer for number, answer in left.items() if number > last}


def _settle(job_id: int, trigger_id: int, epoch: int, answers: Mapping[int, Answer], now: int, connection: Connection) -> int:
    """Settle one slice, the lowest numbers first; return up to which number all are settled."""
    require_running(connection, job_id)
    leases.require_lease(connection, job_id, trigger_id, epoch)
    part = sorted(answers)[:MOST_ITEMS]
    if not part:
        return 0
    named = _sized.where(backlog.c.trigger_id == trigger_id, backlog.c.number.in_(part)).order_by(backlog.c.number)
    settled = take_slice(connection, named, MOST_ITEMS)
    if settled.rows:
        _answer(connection, trigger_id, settled.rows, answers, now)
    return int(settled.rows[-1].number if settled.full else part[-1])


def drop(connection: Connection, trigger_id: int, most: int, now: int) -> int:
    """Drop the oldest of what is kept for a trigger, one slice of at most `most`; return how much. Custody counts it as dropped."""
    dropped = Slice(most)
    _drop(connection, trigger_id, dropped, now)
    return len(dropped.rows)


def _drop(connection: Connection, trigger_id: int, dropped: Slice, now: int) -> None:
    """Drop the oldest of what is kept for a trigger while the slice has room."""
    rows = dropped.add(connection, _sized.where(backlog.c.trigger_id == trigger_id).order_by(backlog.c.number))
    if rows:
        _answer(connection, trigger_id, rows, {row.number: DROPPED for row in rows}, now)


def removed_backlogs(connection: Connection, before: int, most: int) -> int:
    """Drop what is kept for triggers that were removed before `before` (microseconds), one slice of at most `most`; return how much.

    What is kept for the trigger of a task run that has ended goes at once: no other has its id.
    """
    old = or_(triggers.c.removed < before, triggers.c.run_id.is_not(None))
    found = (
        connection.execute(
            select(triggers.c.id)
            .where(triggers.c.state == "removed", triggers.c.backlog > 0, old)
            .order_by(triggers.c.id)
            .limit(MOST_TRIGGERS)
        )
        .scalars()
        .all()
    )
    dropped = Slice(most)
    for trigger_id in found:
        if not dropped.full:
            _drop(connection, trigger_id, dropped, before)
    return len(dropped.rows)


def _answer(connection: Connection, trigger_id: int, rows: Sequence[Found], answers: Mapping[int, Settlement], now: int) -> None:
    """Take rows out of a trigger's backlog, and count how they were answered."""
    early = [row for row in rows if _before_its_receipt(row)]
    gone = [row for row in rows if not _before_its_receipt(row)]
    if early:
        connection.execute(_leave_answer, [{"n": row.number, "given": answers[row.number]} for row in early])
    forget(connection, [row.number for row in gone])
    for part in chunks([row.spill_id for row in rows]):  # a trigger wants each of them once
        connection.execute(_drop_spills, {"ids": part})
        connection.execute(_unref, {"ids": part})
    connection.execute(update(triggers).where(triggers.c.id == trigger_id).values(backlog=triggers.c.backlog - len(rows)))
    count_settled(connection, [(row.lane_id, trigger_id, answers[row.number]) for row in gone if row.counted])
    redriven = [Redriven(row.letter_id, trigger_id, row.number, answers[row.number]) for row in gone if row.letter_id is not None]
    settle_redriven(connection, redriven, now)


def _before_its_receipt(row: Found) -> bool:
    """Whether the receipt of the row's stretch is still to come."""
    return row.letter_id is None and row.position is not None and not row.counted and (row.last is None or row.position > row.last)


def forget(connection: Connection, numbers: Sequence[int]) -> None:
    """Take rows out of the backlog."""
    for part in chunks(numbers):
        connection.execute(_remove, {"numbers": part})


def chunks(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield as many of `numbers` at a time as one statement takes."""
    for start in range(0, len(numbers), MOST_NUMBERS):
        yield numbers[start : start + MOST_NUMBERS]


def count_settled(connection: Connection, answered: Sequence[tuple[int, int, str]]) -> None:
    """Count (lane, trigger, answer) in the custody, where each of them is on the books as spilled or redriven."""
    for (lane, trigger, answer), n in Counter(answered).items():
        column = custody.c[f"settled_{answer}"]
        place = (custody.c.stream_id == stream_of(lane), custody.c.trigger_id == trigger)
        connection.execute(update(custody).where(*place).values({column: column + n}))
