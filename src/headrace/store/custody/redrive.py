"""Redrive or discard dead letters. A redrive inserts the raw text into the backlogs of its triggers.

Invariant: an action changes a dead letter at most once, however often the call is repeated. Each action stores one
row: user, time, kind and number of dead letters. An action on many dead letters takes several transactions, and its
row has the number changed so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, false, func, insert, or_, select, update

from headrace.core.values.moments import moment
from headrace.core.values.shards import SEPARATOR
from headrace.errors import ApiRefused
from headrace.store.custody.lanes import Lane, get_or_create_lanes, stream_of
from headrace.store.custody.spills import BacklogInsert, redrive_key
from headrace.store.db.database import Database
from headrace.store.db.slices import Slice, size_of
from headrace.store.dead_letters.short_ids import full_ids
from headrace.store.dead_letters.texts import whole_text
from headrace.store.dialects.statements import ResultRow, in_list, json_array_has, rows_among
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import backlog, dead_letter_actions, dead_letter_texts, dead_letters, trigger_answers
from headrace.wire.custody.dead_letters import (
    DeadLetterAction,
    DeadLetterActionKind,
    DeadLetterActionResult,
    DeadLetterActions,
    DeadLetterSelection,
    SkippedDeadLetter,
)

MAX_REDRIVEN_CHARS = 16 * 1024 * 1024
"""Maximum characters of the raw events that one call redrives. A single raw event may be longer."""
BATCH_DEAD_LETTERS: Final = 100
"""Dead letters that one transaction changes. Each is looked up separately."""

_UNKNOWN: Final = "there is no such dead letter (any more)"
_MUCH_TEXT: Final = "there is much text before it: redrive it once more"
_COLUMNS = [column for column in dead_letters.c if column.name not in ("raw", "traceback")]
_dead_letters_by_id = select(*_COLUMNS).where(in_list(dead_letters.c.id, "ids"))
_whole = func.coalesce(dead_letter_texts.c.bytes, 0)
_sizes = (
    select(dead_letters.c.id, size_of(dead_letters.c.raw, dead_letters.c.traceback, plus=_whole))
    .outerjoin(dead_letter_texts, dead_letter_texts.c.dead_letter_id == dead_letters.c.id)
    .where(in_list(dead_letters.c.id, "ids"))
)


_triggers = select(triggers.c.id, triggers.c.stream, triggers.c.state, triggers.c.run_id).where(in_list(triggers.c.id, "ids"))


class DeadLetters:
    """Redrive and discard the dead letters of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def redrive(self, selection: DeadLetterSelection) -> DeadLetterActionResult:
        """Redrive the triggers of these dead letters.

        Raises:
            ApiRefused: The selection is empty or has both ids and a filter.
        """
        return self._act("redrive", selection)

    def discard(self, selection: DeadLetterSelection) -> DeadLetterActionResult:
        """Discard these dead letters. They stay readable.

        Raises:
            ApiRefused: The selection is empty or has both ids and a filter.
        """
        return self._act("discard", selection)

    def actions(self, *, limit: int) -> DeadLetterActions:
        """Return the recorded actions, the newest first."""
        with self._database.reading() as connection:
            rows = connection.execute(select(dead_letter_actions).order_by(dead_letter_actions.c.id.desc()).limit(limit))
            return DeadLetterActions(actions=[_action(row) for row in rows])

    def _act(self, action: DeadLetterActionKind, selection: DeadLetterSelection) -> DeadLetterActionResult:
        filtered = selection.select_all or any(value is not None for value in (selection.trigger, selection.stream, selection.kind))
        if bool(selection.ids) == filtered:
            raise ApiRefused("Name dead letters by their ids, or by a filter, and not by both.", status=422, problem="invalid")
        with self._database.reading() as connection:
            selection = selection.model_copy(update={"ids": full_ids(connection, dead_letters.c.id, selection.ids)})
            chosen = _chosen(connection, selection)
        progress = _Progress(chosen.ids, [], chosen.remaining, None, 0, MAX_REDRIVEN_CHARS)
        while progress.left or progress.action_id is None:
            progress = self._database.write(partial(_act, action=action, selection=selection, before=progress, now=self._database.now()))
        return DeadLetterActionResult(count=progress.changed, skipped=progress.skipped, remaining=progress.remaining)


class _Chosen(NamedTuple):
    """The selected dead letters, and how many more match the filter."""

    ids: Sequence[str]
    remaining: int


class _Progress(NamedTuple):
    """The remaining ids of an action, and the result of its transactions so far.

    `room` is the number of characters that it may still redrive.
    """

    left: Sequence[str]
    skipped: list[SkippedDeadLetter]
    remaining: int
    action_id: int | None
    changed: int
    room: int


def _action(row: Row[Any]) -> DeadLetterAction:
    values = row._asdict()
    selection = values.pop("request")
    return DeadLetterAction(**values | {"at": moment(row.at), "selection": selection})


def _act(connection: Connection, action: DeadLetterActionKind, selection: DeadLetterSelection, before: _Progress, now: int) -> _Progress:
    """Apply the action to one slice of the remaining dead letters."""
    rows, left = _slice(connection, before.left)
    known = {row.id for row in rows}
    seen = before.left[: len(before.left) - len(left)]
    skipped = [SkippedDeadLetter(id=id, why=_UNKNOWN) for id in seen if selection.ids and id not in known]
    if not selection.ids:  # a dead letter that another action changed meanwhile no longer matches the filter
        rows = [row for row in rows if row.state == "open"]
    rejected: list[SkippedDeadLetter] = []
    changed: Sequence[str]
    remaining, room = before.remaining, before.room
    if action == "redrive":
        changed, later, room = _redrive(connection, rows, rejected, now, room)
        if later:
            left = [*later, *left]
            skipped += [SkippedDeadLetter(id=id, why=_MUCH_TEXT) for id in left if selection.ids]
            remaining += 0 if selection.ids else len(left)
            left = []
    else:
        changed = [row.id for row in rows if _open(row, rejected)]
        _become(connection, changed, "discarded", now)
    count = before.changed + len(changed)
    action_id = _record_action(connection, action, selection, before.action_id, count, now)
    return _Progress(left, [*before.skipped, *skipped, *rejected], remaining, action_id, count, room)


def _record_action(
    connection: Connection, action: DeadLetterActionKind, selection: DeadLetterSelection, action_id: int | None, count: int, now: int
) -> int:
    """Store how many dead letters an action has changed so far. Return its id."""
    if action_id is not None:
        connection.execute(update(dead_letter_actions).where(dead_letter_actions.c.id == action_id).values(count=count))
        return action_id
    what = selection.model_dump_json(exclude={"by"}, exclude_defaults=True)
    row = {"at": now, "who": selection.by or "unnamed", "action": action, "request": what, "count": count}
    return int(connection.execute(insert(dead_letter_actions).values(**row).returning(dead_letter_actions.c.id)).scalar_one())


def _slice(connection: Connection, ids: Sequence[str]) -> tuple[list[ResultRow], Sequence[str]]:
    """Return the existing dead letters of the first slice, in order, and the ids left for later transactions."""
    part = ids[:BATCH_DEAD_LETTERS]
    if not part:
        return [], []
    size = {row.id: int(row.bytes) for row in connection.execute(_sizes, {"ids": part})}
    taken = Slice(BATCH_DEAD_LETTERS)
    for id in part:
        if not taken.take(id, size.get(id, 0)):
            break
    known = {row.id: row for row in connection.execute(_dead_letters_by_id, {"ids": taken.rows})}
    return [known[id] for id in taken.rows if id in known], ids[len(taken.rows) :]


def _chosen(connection: Connection, selection: DeadLetterSelection) -> _Chosen:
    """Select the dead letters outside the writer's transactions, so that none of them scans the whole table."""
    if selection.ids:
        return _Chosen(list(dict.fromkeys(selection.ids))[: selection.limit], 0)
    fits = [dead_letters.c.state == "open"]
    if selection.stream is not None:
        fits.append(dead_letters.c.stream == selection.stream)
    if selection.kind is not None:
        fits.append(dead_letters.c.kind == selection.kind)
    if selection.trigger is not None:
        named = (triggers.c.name == selection.trigger) | triggers.c.name.startswith(f"{selection.trigger}{SEPARATOR}", autoescape=True)
        ids = list(connection.execute(select(triggers.c.id).where(named)).scalars())
        fits.append(or_(false(), *(json_array_has(dead_letters.c.triggers, id) for id in ids)))
    query = select(dead_letters.c.id).where(*fits).order_by(dead_letters.c.received, dead_letters.c.id).limit(selection.limit)
    chosen = connection.execute(query).scalars().all()
    total = connection.execute(select(func.count()).select_from(dead_letters).where(*fits)).scalar_one()
    return _Chosen(chosen, int(total) - len(chosen))


def _open(row: ResultRow, skipped: list[SkippedDeadLetter]) -> bool:
    if row.state != "open":
        skipped.append(SkippedDeadLetter(id=row.id, why=f"it is {row.state} already"))
    return bool(row.state == "open")


def _become(connection: Connection, ids: Sequence[str], state: str, now: int) -> None:
    connection.execute(update(dead_letters).where(in_list(dead_letters.c.id, "ids")).values(state=state, acted=now), {"ids": list(ids)})


def _redrive(
    connection: Connection, chosen: Sequence[ResultRow], skipped: list[SkippedDeadLetter], now: int, room: int
) -> tuple[list[str], list[str], int]:
    """Store the raw texts for the triggers of these dead letters that currently read their stream. The other triggers stay named.

    Return the redriven dead letters, those beyond the limit of one call, and the remaining room in characters.
    """
    known = {row.id: row for row in rows_among(connection, _triggers, "ids", {trigger for row in chosen for trigger in _named(row)})}
    today = {id: row.stream for id, row in known.items() if row.state != "removed"}
    lanes = get_or_create_lanes(connection, ((row.stream, row.lane or "") for row in chosen), now)
    inserts = BacklogInsert(connection, now)
    done: list[str] = []
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
        key = redrive_key(row.id)
        stored = set(connection.execute(select(backlog.c.trigger_id).where(backlog.c.lane_id == lane.id, backlog.c.key == key)).scalars())
        new = [trigger for trigger in readers if trigger not in stored]
        if new:
            counted = frozenset(_counted(connection, lane, row.position, new))
            inserts.add(raw, new, lane.id, key, row.position, dead_letter_id=row.id, counted=counted)
        left = [trigger for trigger in _named(row) if trigger in known and _can_return(known[trigger])]
        connection.execute(update(dead_letters).where(dead_letters.c.id == row.id).values(triggers=msgspec.json.encode(left).decode()))
        done.append(row.id)
    else:
        later = []
    inserts.write(connection)
    _become(connection, done, "redriven", now)
    return done, later, room


def _can_return(trigger: ResultRow) -> bool:
    """Return whether a trigger may read a stream later. That of an ended task run never does: its id is not used again."""
    return trigger.run_id is None or trigger.state != "removed"


def _why_not(row: ResultRow, readers: Sequence[int]) -> str | None:
    if row.state == "redriven":
        return "it is redriven already"
    if row.kind == "unserialisable":
        return "what it keeps is not the raw event, but what a trigger made of it"
    if not readers:
        return f"none of its triggers reads the stream {row.stream} any more"
    return None


def _named(row: ResultRow) -> list[int]:
    return msgspec.json.decode(row.triggers, type=list[int])


def _counted(connection: Connection, lane: Lane, position: int | None, trigger_ids: Iterable[int]) -> list[int]:
    """Return the triggers whose answers count this raw event as rejected or dead-lettered.

    The event is counted as redriven, so it is pending again. A position without a receipt has no such triggers.
    """
    if position is None or lane.last is None or position > lane.last:
        return []
    given_up = (
        trigger_answers.c.dead_lettered
        + trigger_answers.c.rejected
        + trigger_answers.c.settled_dead_lettered
        + trigger_answers.c.settled_rejected
    )
    mine = (
        trigger_answers.c.stream_id == stream_of(lane.id),
        in_list(trigger_answers.c.trigger_id, "trigger_ids"),
        given_up > trigger_answers.c.redriven,
    )
    named = {"trigger_ids": list(trigger_ids)}
    trigger_ids_given_up = list(connection.execute(select(trigger_answers.c.trigger_id).where(*mine), named).scalars())
    connection.execute(update(trigger_answers).where(*mine).values(redriven=trigger_answers.c.redriven + 1), named)
    return trigger_ids_given_up
