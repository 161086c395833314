"""What people do about dead letters: tried again (the raw text goes into the backlog of its triggers) or discarded.

The law: an action changes a letter at most once, however often it is asked for; each action that is asked for leaves one row that says
who, when, what and how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, false, func, insert, or_, select, update

from headrace.errors import ApiRefused
from headrace.store.database import Database
from headrace.store.dialects import has_number
from headrace.store.lanes import Lane, lanes_of, stream_of
from headrace.store.letter_texts import whole_text
from headrace.store.short_ids import full_ids
from headrace.store.spilling import Keeping, letter_key
from headrace.store.tables import backlog, custody, dead_letter_actions, dead_letters, triggers
from headrace.store.times import moment
from headrace.wire.dead_letters import (
    ActOnDeadLetters,
    DeadLetterAction,
    DeadLetterActionKind,
    DeadLetterActions,
    DeadLettersActed,
    SkippedDeadLetter,
)

MAX_REDRIVEN_CHARS = 16 * 1024 * 1024
"""Raw events of so much text are redriven at once, and one at least: nobody else writes meanwhile."""

_LETTER = [column for column in dead_letters.c if column.name not in ("raw", "traceback")]

Found = Row[*tuple[Any, ...]]


class DeadLetters:
    """The dead letters of one database, as people act on them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def redrive(self, asked: ActOnDeadLetters) -> DeadLettersActed:
        """Let the triggers of these letters try again.

        Raises:
            ApiRefused: Nothing, or two things at once, are asked for.
        """
        return self._act("redrive", asked)

    def discard(self, asked: ActOnDeadLetters) -> DeadLettersActed:
        """Give these letters up for good; they stay to be looked at.

        Raises:
            ApiRefused: Nothing, or two things at once, are asked for.
        """
        return self._act("discard", asked)

    def actions(self, *, limit: int) -> DeadLetterActions:
        """Return what was done, the newest first."""
        with self._database.reading() as connection:
            found = connection.execute(select(dead_letter_actions).order_by(dead_letter_actions.c.id.desc()).limit(limit))
            return DeadLetterActions(actions=[DeadLetterAction(**{**row._asdict(), "at": moment(row.at)}) for row in found])

    def _act(self, action: DeadLetterActionKind, asked: ActOnDeadLetters) -> DeadLettersActed:
        filtered = asked.every or any(given is not None for given in (asked.trigger, asked.stream, asked.kind))
        if bool(asked.ids) == filtered:
            raise ApiRefused("Name dead letters by their ids, or by a filter, and not by both.", status=422, problem="invalid")
        with self._database.reading() as connection:
            asked = asked.model_copy(update={"ids": full_ids(connection, dead_letters.c.id, asked.ids)})
        return self._database.write(lambda connection: _act(connection, action, asked, self._database.now()))


def _act(connection: Connection, action: DeadLetterActionKind, asked: ActOnDeadLetters, now: int) -> DeadLettersActed:
    chosen, skipped, remaining = _chosen(connection, asked)
    changed: Sequence[str]
    if action == "redrive":
        changed, later = _redrive(connection, chosen, skipped, now)
        if asked.ids:
            skipped += [SkippedDeadLetter(id=id, why="there is much text before it: redrive it once more") for id in later]
        remaining += 0 if asked.ids else len(later)
    else:
        changed = [row.id for row in chosen if _open(row, skipped)]
        _become(connection, changed, "discarded", now)
    what = asked.model_dump_json(exclude={"by"}, exclude_defaults=True)
    row = {"at": now, "who": asked.by or "unnamed", "action": action, "asked": what, "count": len(changed)}
    connection.execute(insert(dead_letter_actions).values(**row))
    return DeadLettersActed(count=len(changed), skipped=skipped, remaining=remaining)


def _chosen(connection: Connection, asked: ActOnDeadLetters) -> tuple[Sequence[Found], list[SkippedDeadLetter], int]:
    """Return the letters asked for, those that there are not, and how many more fit a filter."""
    if asked.ids:
        wanted = list(dict.fromkeys(asked.ids))[: asked.limit]
        known = {row.id: row for row in connection.execute(select(*_LETTER).where(dead_letters.c.id.in_(wanted)))}
        gone = [SkippedDeadLetter(id=id, why="there is no such dead letter (any more)") for id in wanted if id not in known]
        return [known[id] for id in wanted if id in known], gone, 0
    fits = [dead_letters.c.state == "open"]
    if asked.stream is not None:
        fits.append(dead_letters.c.stream == asked.stream)
    if asked.kind is not None:
        fits.append(dead_letters.c.kind == asked.kind)
    if asked.trigger is not None:
        ids = list(connection.execute(select(triggers.c.id).where(triggers.c.name == asked.trigger)).scalars())
        fits.append(or_(false(), *(has_number(dead_letters.c.triggers, id) for id in ids)))
    query = select(*_LETTER).where(*fits).order_by(dead_letters.c.received, dead_letters.c.id).limit(asked.limit)
    found = connection.execute(query).all()
    total = connection.execute(select(func.count()).select_from(dead_letters).where(*fits)).scalar_one()
    return found, [], int(total) - len(found)


def _open(row: Found, skipped: list[SkippedDeadLetter]) -> bool:
    if row.state != "open":
        skipped.append(SkippedDeadLetter(id=row.id, why=f"it is {row.state} already"))
    return bool(row.state == "open")


def _become(connection: Connection, ids: Sequence[str], state: str, now: int) -> None:
    connection.execute(update(dead_letters).where(dead_letters.c.id.in_(ids)).values(state=state, acted=now))


def _redrive(connection: Connection, chosen: Sequence[Found], skipped: list[SkippedDeadLetter], now: int) -> tuple[list[str], list[str]]:
    """Keep the raw texts of the letters for those of their triggers that read the letter's stream today.

    Returns which were redriven, and which were too much for once.
    """
    wanted = {trigger for row in chosen for trigger in _named(row)}
    today = {
        row.id: row.stream
        for row in connection.execute(
            select(triggers.c.id, triggers.c.stream).where(triggers.c.id.in_(wanted), triggers.c.state != "removed")
        )
    }
    lanes = lanes_of(connection, ((row.stream, row.lane or "") for row in chosen), now)
    keeping = Keeping(connection, now)
    done: list[str] = []
    room = MAX_REDRIVEN_CHARS
    for at, row in enumerate(chosen):
        if room <= 0:
            later = [one.id for one in chosen[at:]]
            break
        readers = [trigger for trigger in _named(row) if today.get(trigger) == row.stream]
        why, raw = _why_not(row, readers), whole_text(connection, row.id)
        if why is not None or raw is None:
            skipped.append(SkippedDeadLetter(id=row.id, why=why or "its text is too long to have been kept whole"))
            continue
        room -= len(raw)
        lane = lanes[row.stream, row.lane or ""]
        key = letter_key(row.id)
        kept = set(connection.execute(select(backlog.c.trigger_id).where(backlog.c.lane_id == lane.id, backlog.c.key == key)).scalars())
        new = [trigger for trigger in readers if trigger not in kept]
        if new:
            counted = frozenset(_counted(connection, lane, row.position, new))
            keeping.keep(raw, new, lane.id, key, row.position, letter=row.id, counted=counted)
        triggers_left = msgspec.json.encode(readers).decode()
        connection.execute(update(dead_letters).where(dead_letters.c.id == row.id).values(triggers=triggers_left))
        done.append(row.id)
    else:
        later = []
    keeping.write(connection)
    _become(connection, done, "redriven", now)
    return done, later


def _why_not(row: Found, readers: Sequence[int]) -> str | None:
    if row.state == "redriven":
        return "it is redriven already"
    if row.kind == "unserialisable":
        return "what it keeps is not the raw event, but what a trigger made of it"
    if not readers:
        return f"none of its triggers reads the stream {row.stream} any more"
    return None


def _named(row: Found) -> list[int]:
    return msgspec.json.decode(row.triggers, type=list[int])


def _counted(connection: Connection, lane: Lane, position: int | None, trigger_ids: Iterable[int]) -> list[int]:
    """Return the triggers whose custody says that this raw event was given up on, and take it back there: it is pending again."""
    if position is None or lane.last is None or position > lane.last:
        return []
    given_up = custody.c.dead_lettered + custody.c.rejected + custody.c.settled_dead_lettered + custody.c.settled_rejected
    mine = (custody.c.stream_id == stream_of(lane.id), custody.c.trigger_id.in_(list(trigger_ids)), given_up > custody.c.redriven)
    found = list(connection.execute(select(custody.c.trigger_id).where(*mine)).scalars())
    connection.execute(update(custody).where(*mine).values(redriven=custody.c.redriven + 1))
    return found
