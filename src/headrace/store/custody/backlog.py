"""Read, settle and drop the backlogs of triggers.

Rows are read in the order in which they were stored. Invariant: a settled row is deleted and never read again. If no
receipt covers the position of a settled row yet, the row stays without its raw text and stores the answer. The
receipt deletes it. Until then, a redelivery of the same raw event is recognized as answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from sqlalchemy import Connection, bindparam, case, delete, or_, select, update

from headrace.errors import ApiRefused, Fenced
from headrace.store.control import leases
from headrace.store.control.jobs import require_running
from headrace.store.custody.lanes import stream_of
from headrace.store.db.database import Database
from headrace.store.db.slices import Slice, size_of, take_slice
from headrace.store.dead_letters.dead_letters import Redriven, Settlement, settle_redriven
from headrace.store.dead_letters.texts import DEAD_LETTER_BYTES
from headrace.store.dialects.statements import LITTLE_BY_LITTLE, ResultRow, in_list
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import backlog, lanes, spills, trigger_answers
from headrace.wire.custody.backlog import BacklogItem, BacklogPage, SettleBacklog, Settled

MAX_PAGE_ITEMS = 2_000
MAX_PAGE_BYTES = 8 * 1024 * 1024
MAX_STATEMENT_NUMBERS = 10_000
MAX_TRIGGERS = 500
DROP_BATCH_ROWS = 500
DROPPED: Final = "dropped"
"""The answer for raw events that were dropped from a backlog. Triggers never send it."""

_redriven = backlog.c.dead_letter_id.is_not(None)
_COLUMNS = (backlog.c.number, lanes.c.stream, lanes.c.lane, backlog.c.position, spills.c.raw, _redriven.label("redriven"))
_waiting = (
    select(*_COLUMNS)
    .join(lanes, lanes.c.id == backlog.c.lane_id)
    .join(spills, spills.c.id == backlog.c.spill_id)
    .where(backlog.c.trigger_id == bindparam("trigger"), backlog.c.number > bindparam("after"), backlog.c.answer.is_(None))
    .order_by(backlog.c.number)
)
_size = size_of(spills.c.raw, plus=case((_redriven, DEAD_LETTER_BYTES), else_=0))
_unanswered = select(backlog, lanes.c.last).join(lanes, lanes.c.id == backlog.c.lane_id).where(backlog.c.answer.is_(None))
_sized = _unanswered.add_columns(_size).outerjoin(spills, spills.c.id == backlog.c.spill_id)
_remove = delete(backlog).where(in_list(backlog.c.number, "numbers"))
_leave_answer = update(backlog).where(backlog.c.number == bindparam("n")).values(answer=bindparam("new_answer"), spill_id=None)
# Delete a spill together with its last reference: an update would write the whole text once more.
_drop_spills = delete(spills).where(in_list(spills.c.id, "ids"), spills.c.refs <= 1)
_unref = update(spills).where(in_list(spills.c.id, "ids")).values(refs=spills.c.refs - 1)


class Backlog:
    """Read and change the backlogs of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, job_id: int, trigger_id: int, *, after: int, limit: int) -> BacklogPage:
        """Return a page of the backlog of a trigger that the job holds.

        The items have a number > `after`, in ascending order. A page has fewer than `limit` items where the texts are
        large. It is empty only when the backlog has no more items.

        Raises:
            Fenced: The job has ended or does not hold the trigger.
        """
        with self._database.reading() as connection:
            require_running(connection, job_id)
            held = select(triggers.c.job_id, triggers.c.backlog).where(triggers.c.id == trigger_id)
            row = connection.execute(held).one_or_none()
            if row is None or row.job_id != job_id:
                raise Fenced(f"Job {job_id} does not hold trigger {trigger_id}.", status=409, problem="fenced")
            items: list[BacklogItem] = []
            size = 0
            query = _waiting.limit(min(limit, MAX_PAGE_ITEMS))
            with connection.execute(query, {"trigger": trigger_id, "after": after}, execution_options=LITTLE_BY_LITTLE) as rows:
                for entry in rows:
                    size += len(entry.raw)
                    if items and size > MAX_PAGE_BYTES:
                        break
                    items.append(BacklogItem(**entry._asdict()))
        return BacklogPage(items=items, depth=row.backlog)

    def drop(self, trigger_id: int) -> int:
        """Drop the backlog of a trigger, a bounded number of rows per commit. Return the number of dropped rows.

        Raises:
            ApiRefused: The trigger does not exist.
        """
        with self._database.reading() as connection:
            if connection.execute(select(triggers.c.id).where(triggers.c.id == trigger_id)).first() is None:
                raise ApiRefused(f"No trigger has the id {trigger_id}.", hint="See: headrace triggers", status=404, problem="not-found")
        dropped = 0
        while more := self._database.write(lambda connection: drop(connection, trigger_id, DROP_BATCH_ROWS, self._database.now())):
            dropped += more
        return dropped

    def settle(self, job_id: int, trigger_id: int, settled: SettleBacklog) -> None:
        """Record the answers to raw events of a backlog, one slice per commit. Ignore numbers that are already settled."""
        left = {one.number: one for one in settled.settled}
        last: int | None = None
        while last is None or left:
            last = self._database.write(partial(_settle, job_id, trigger_id, settled.epoch, left, self._database.now()))
            left = {number: one for number, one in left.items() if number > last}


def _settle(job_id: int, trigger_id: int, epoch: int, answers: Mapping[int, Settled], now: int, connection: Connection) -> int:
    """Settle one slice in ascending order. Return the number up to which all items are settled."""
    require_running(connection, job_id)
    leases.require_lease(connection, job_id, trigger_id, epoch)
    part = sorted(answers)[:MAX_PAGE_ITEMS]
    if not part:
        return 0
    named = _sized.where(backlog.c.trigger_id == trigger_id, backlog.c.number.in_(part)).order_by(backlog.c.number)
    settled = take_slice(connection, named, MAX_PAGE_ITEMS)
    if settled.rows:
        reasons = {number: one.reason for number, one in answers.items() if one.reason}
        _answer(connection, trigger_id, settled.rows, {number: one.answer for number, one in answers.items()}, now, reasons)
    return int(settled.rows[-1].number if settled.full else part[-1])


def drop(connection: Connection, trigger_id: int, limit: int, now: int) -> int:
    """Drop one slice of the oldest rows of a backlog, at most `limit`. Count them as dropped. Return how many."""
    dropped = Slice(limit)
    _drop(connection, trigger_id, dropped, now)
    return len(dropped.rows)


def _drop(connection: Connection, trigger_id: int, dropped: Slice, now: int) -> None:
    """Drop the oldest rows of a backlog while the slice has room."""
    rows = dropped.add(connection, _sized.where(backlog.c.trigger_id == trigger_id).order_by(backlog.c.number))
    if rows:
        _answer(connection, trigger_id, rows, {row.number: DROPPED for row in rows}, now)


def removed_backlogs(connection: Connection, before: int, limit: int) -> int:
    """Drop one slice of the backlogs of removed triggers, at most `limit` rows. Return how many.

    A trigger qualifies if it was removed before `before` (µs since the epoch). The trigger of an ended task run
    qualifies at any age, because its id is never used again.
    """
    old = or_(triggers.c.removed < before, triggers.c.run_id.is_not(None))
    trigger_ids = (
        connection.execute(
            select(triggers.c.id)
            .where(triggers.c.state == "removed", triggers.c.backlog > 0, old)
            .order_by(triggers.c.id)
            .limit(MAX_TRIGGERS)
        )
        .scalars()
        .all()
    )
    dropped = Slice(limit)
    for trigger_id in trigger_ids:
        if not dropped.full:
            _drop(connection, trigger_id, dropped, before)
    return len(dropped.rows)


def _answer(
    connection: Connection,
    trigger_id: int,
    rows: Sequence[ResultRow],
    answers: Mapping[int, Settlement],
    now: int,
    reasons: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Remove rows from a trigger's backlog and count their answers. `reasons` has those of dead letters, by number."""
    early = [row for row in rows if _before_its_receipt(row)]
    removed = [row for row in rows if not _before_its_receipt(row)]
    if early:
        connection.execute(_leave_answer, [{"n": row.number, "new_answer": answers[row.number]} for row in early])
    delete_rows(connection, [row.number for row in removed])
    for part in chunks([row.spill_id for row in rows]):  # a trigger references each spill once
        connection.execute(_drop_spills, {"ids": part})
        connection.execute(_unref, {"ids": part})
    connection.execute(update(triggers).where(triggers.c.id == trigger_id).values(backlog=triggers.c.backlog - len(rows)))
    count_settled(connection, [(row.lane_id, trigger_id, answers[row.number]) for row in removed if row.accounted])
    redriven = [
        Redriven(row.dead_letter_id, trigger_id, row.number, row.lane_id, bytes(row.key), answers[row.number], reasons.get(row.number))
        for row in removed
        if row.dead_letter_id is not None
    ]
    settle_redriven(connection, redriven, now)


def _before_its_receipt(row: ResultRow) -> bool:
    """Return whether the receipt that covers the row's position is not recorded yet."""
    return row.dead_letter_id is None and row.position is not None and not row.accounted and (row.last is None or row.position > row.last)


def delete_rows(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete these rows of the backlog."""
    for part in chunks(numbers):
        connection.execute(_remove, {"numbers": part})


def chunks(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split `numbers` into parts of the size that one statement accepts."""
    for start in range(0, len(numbers), MAX_STATEMENT_NUMBERS):
        yield numbers[start : start + MAX_STATEMENT_NUMBERS]


def count_settled(connection: Connection, answered: Sequence[tuple[int, int, str]]) -> None:
    """Add (lane, trigger, answer) to the settled counts of `trigger_answers`.

    Each raw event is already counted there as spilled or redriven.
    """
    for (lane, trigger, answer), n in Counter(answered).items():
        column = trigger_answers.c[f"settled_{answer}"]
        conditions = (trigger_answers.c.stream_id == stream_of(lane), trigger_answers.c.trigger_id == trigger)
        connection.execute(update(trigger_answers).where(*conditions).values({column: column + n}))
