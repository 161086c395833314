"""The facts of the log and of custody on one event and one trigger, from which `explain_firing` decides."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, exists, func, select

from headrace.core.matching.firing_explanation import (
    BacklogEntry,
    DeadLetterFacts,
    ExplainedAnswers,
    ExplainedEvent,
    ExplainedTrigger,
    OtherFiring,
)
from headrace.store.control import encrypted_arguments
from headrace.store.custody.spills import position_key
from headrace.store.custody.subscriber_sets import ANSWERS, SETTLED
from headrace.store.dead_letters.short_ids import short_id
from headrace.store.dialects.statements import ResultRow
from headrace.store.keyring import Keyring
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import backlog, dead_letters, lanes, recorded_streams, spills, trigger_answers
from headrace.store.tables.log import events, firings
from headrace.triggers.watch import CLASSPATH

MAX_DISTANCE_SEQS: Final = 10_000
"""Distance from an event within which other events of its raw event are searched."""
_EVENT: Final = [events.c[name] for name in ("seq", "stream", "lane", "position", "received", "payload")]
_STATE_ORDER: Final = {"open": 0, "redriven": 1, "discarded": 2}


def explained_event(connection: Connection, seq: int) -> ExplainedEvent | None:
    """Return the event `seq` of the log, or None if the log does not have it."""
    row = connection.execute(select(*_EVENT).where(events.c.seq == seq)).one_or_none()
    if row is None:
        return None
    watches = select(triggers.c.id).join(firings, firings.c.trigger_id == triggers.c.id)
    watch = connection.execute(watches.where(firings.c.seq == seq, triggers.c.classpath == CLASSPATH).limit(1)).first()
    return ExplainedEvent(**row._asdict(), is_message=watch is not None)


def triggers_that_fired(connection: Connection, seq: int, trigger_ids: Collection[int]) -> set[int]:
    """Return the triggers among these that fired on the event."""
    fired = select(firings.c.trigger_id).where(firings.c.seq == seq, firings.c.trigger_id.in_(trigger_ids))
    return set(connection.execute(fired).scalars())


def explained_trigger(keyring: Keyring, row: ResultRow, *, has_secret: bool) -> ExplainedTrigger:
    """Return the trigger of a row of the table `triggers`."""
    arguments, unreadable = stored_arguments(keyring, row)
    return ExplainedTrigger(
        **{name: getattr(row, name) for name in ("name", "stream", "state", "registered", "declared", "removed", "conflicts")},
        is_watch=is_watch(row),
        arguments=arguments,
        unreadable=unreadable,
        has_secret=has_secret,
    )


def is_watch(row: ResultRow) -> bool:
    """Return whether a row of the table `triggers` is that of a declared watch."""
    return bool(row.classpath == CLASSPATH)


def stored_arguments(keyring: Keyring, row: ResultRow) -> tuple[dict[str, Any] | None, str | None]:
    """Return the keyword arguments of a trigger, or None and the reason why no key decrypts them."""
    text, unreadable = encrypted_arguments.decrypt(keyring, row.kwargs, encrypted_arguments.display_name(row.project, row.name))
    return (msgspec.json.decode(text, type=dict[str, Any]), None) if unreadable is None else (None, unreadable)


def explained_answers(connection: Connection, event: ExplainedEvent, trigger_id: int) -> ExplainedAnswers:
    """Return what is stored of the answer of the trigger to the raw event of the event."""
    fired = bool(triggers_that_fired(connection, event.seq, [trigger_id]))
    if fired or event.stream is None:
        return ExplainedAnswers(fired=fired)
    lane = connection.execute(select(lanes.c.id, lanes.c.last).where(lanes.c.stream == event.stream, lanes.c.lane == event.lane)).first()
    return ExplainedAnswers(
        other=_other_firing(connection, event, trigger_id),
        backlog=None if lane is None else _in_backlog(connection, event, lane.id, trigger_id),
        dead_letter=_dead_letter(connection, event, trigger_id),
        recorded=None if lane is None else lane.last,
        totals=_totals(connection, event.stream, trigger_id),
    )


def _other_firing(connection: Connection, event: ExplainedEvent, trigger_id: int) -> OtherFiring | None:
    """Return another event of the raw event on which the trigger fired. Triggers that map fields differently make several events of it."""
    if event.position is None:
        return None
    near = events.c.seq.between(event.seq - MAX_DISTANCE_SEQS, event.seq + MAX_DISTANCE_SEQS)
    origin = (events.c.stream == event.stream, events.c.lane == event.lane, events.c.position == event.position)
    fired = exists().where(firings.c.seq == events.c.seq, firings.c.trigger_id == trigger_id)
    distance = func.abs(events.c.seq - event.seq)
    row = connection.execute(select(events.c.seq, events.c.id).where(near, *origin, fired).order_by(distance).limit(1)).first()
    return None if row is None else OtherFiring(row.seq, row.id)


def _in_backlog(connection: Connection, event: ExplainedEvent, lane_id: int, trigger_id: int) -> BacklogEntry | None:
    if event.position is None:
        return None
    entry = select(backlog.c.answer, spills.c.received).outerjoin(spills, spills.c.id == backlog.c.spill_id)
    mine = (backlog.c.lane_id == lane_id, backlog.c.key == position_key(event.position), backlog.c.trigger_id == trigger_id)
    row = connection.execute(entry.where(*mine)).one_or_none()
    return None if row is None else BacklogEntry(row.received, row.answer)


def _dead_letter(connection: Connection, event: ExplainedEvent, trigger_id: int) -> DeadLetterFacts | None:
    """Return the dead letter of the raw event that names the trigger, an open one first."""
    if event.position is None:
        return None
    columns = [dead_letters.c[name] for name in ("id", "kind", "reason", "state", "triggers")]
    origin = (
        dead_letters.c.stream == event.stream,
        dead_letters.c.lane == event.lane,
        dead_letters.c.position == event.position,
    )
    rows = connection.execute(select(*columns).where(*origin).order_by(dead_letters.c.number.desc())).all()
    mine = [row for row in rows if trigger_id in msgspec.json.decode(row.triggers, type=list[int])]
    if not mine:
        return None
    row = min(mine, key=lambda row: _STATE_ORDER.get(row.state, len(_STATE_ORDER)))
    return DeadLetterFacts(short_id(row.id), row.kind, row.reason, row.state)


def _totals(connection: Connection, stream: str, trigger_id: int) -> dict[str, int]:
    """Return the counts of the answers of the trigger to raw events of the stream, first answers and answers from its backlog."""
    columns = [trigger_answers.c[name] for name in (*ANSWERS, *SETTLED)]
    of_stream = select(*columns).join(recorded_streams, recorded_streams.c.id == trigger_answers.c.stream_id)
    row = connection.execute(of_stream.where(recorded_streams.c.stream == stream, trigger_answers.c.trigger_id == trigger_id)).one_or_none()
    return {} if row is None else {name: int(value) for name, value in row._asdict().items() if value}
