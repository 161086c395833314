"""Pages of the log, the runs and the dead letters, the newest first, for people who look around."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select, tuple_

from headrace.core.tracing import event_trace
from headrace.store.appending import HEAD
from headrace.store.tables import dead_letters, events, firings, meta, runs, triggers
from headrace.store.times import moment
from headrace.wire.runs import RunReport
from headrace.wire.status import DeadLetterDetail, DeadLetterPage, DeadLetterSummary, EventDetail, EventPage, EventSummary

STRETCH = 100_000
"""How many events a filtered page looks through at most."""

_SUMMARY = [events.c[name] for name in ("seq", "type", "subject", "id", "source", "follows", "leader_seq", "occurred", "received")]
_LETTER = [
    dead_letters.c[name] for name in ("id", "kind", "reason", "stream", "lane", "position", "triggers", "attempts", "received", "state")
]

Found = Row[*tuple[Any, ...]]


def newest_events(connection: Connection, *, limit: int) -> list[EventSummary]:
    """Return the last `limit` events, the newest first."""
    last = select(*_SUMMARY).where(events.c.seq > head(connection) - limit).order_by(events.c.seq.desc())
    return _summaries(connection, connection.execute(last).all())


def head(connection: Connection) -> int:
    """Return the last `seq` of the log, 0 while it is empty; it is also how many events were ever stored."""
    return int(connection.execute(select(meta.c.value).where(meta.c.name == HEAD)).scalar_one())


def event_page(
    connection: Connection,
    *,
    after: int | None = None,
    before: int | None = None,
    limit: int,
    type: str | None = None,
    subject: str | None = None,
) -> EventPage:
    """Return events with after < seq < before, of that type and subject where these are given.

    The newest come first, unless only `after` is given: then those that follow it, the oldest first.
    """
    end = head(connection) + 1
    low = after or 0
    high = end if before is None else min(before, end)
    forward = after is not None and before is None
    stretch = high if type is None and subject is None else STRETCH
    if forward:
        high = min(high, low + 1 + stretch)
    bottom = low if forward else max(low, high - 1 - stretch)
    query = select(*_SUMMARY).where(events.c.seq > bottom, events.c.seq < high)
    if type is not None:
        query = query.where(events.c.type == type)
    if subject is not None:
        query = query.where(events.c.subject == subject)
    order = events.c.seq.asc() if forward else events.c.seq.desc()
    found = connection.execute(query.order_by(order).limit(limit)).all()
    full = len(found) == limit
    summaries = _summaries(connection, found)
    if forward:
        return EventPage(events=summaries, after=found[-1].seq if full else max(low, high - 1), before=None)
    reached = found[-1].seq if full else bottom + 1
    return EventPage(events=summaries, after=None, before=reached if reached > low + 1 else None)


def event_detail(connection: Connection, seq: int) -> EventDetail | None:
    """Return the event `seq`, or None."""
    columns = [*_SUMMARY, *(events.c[name] for name in ("stream", "lane", "position", "trace", "payload"))]
    row = connection.execute(select(*columns).where(events.c.seq == seq)).one_or_none()
    if row is None:
        return None
    known = {**_times(row), "trace": event_trace(row.source, row.id, row.trace)}
    return EventDetail(**known, triggers=_fired(connection, [seq])[seq])


def _summaries(connection: Connection, found: Sequence[Found]) -> list[EventSummary]:
    names = _fired(connection, [row.seq for row in found])
    return [EventSummary(**_times(row), triggers=names[row.seq]) for row in found]


def _times(row: Found) -> dict[str, Any]:
    return {**row._asdict(), "occurred": moment(row.occurred), "received": moment(row.received)}


def _fired(connection: Connection, seqs: Sequence[int]) -> dict[int, list[str]]:
    """Return the names of the triggers that fired on each event."""
    names: dict[int, list[str]] = defaultdict(list)
    query = select(firings.c.seq, triggers.c.name).join(triggers, triggers.c.id == firings.c.trigger_id).where(firings.c.seq.in_(seqs))
    for seq, name in connection.execute(query.order_by(triggers.c.name)):
        names[seq].append(name)
    return names


def last_runs(connection: Connection, *, limit: int, pipeline: str | None = None, with_seqs: bool = True) -> list[RunReport]:
    """Return the runs that started last, the newest first; without `seqs` unless asked for, which may be long."""
    query = select(runs).order_by(runs.c.started.desc(), runs.c.run_id).limit(limit)
    if pipeline is not None:
        query = query.where(runs.c.pipeline == pipeline)
    return [_run(row, with_seqs=with_seqs) for row in connection.execute(query)]


def _run(row: Found, *, with_seqs: bool) -> RunReport:
    return RunReport(
        run_id=row.run_id,
        pipeline=row.pipeline,
        scope=row.scope,
        batch=row.batch,
        attempt=row.attempt,
        state=row.state,
        started=moment(row.started),
        finished=None if row.finished is None else moment(row.finished),
        events=row.events,
        rows=row.rows,
        seqs=json.loads(row.seqs) if with_seqs else [],
        error=row.error,
    )


def dead_letter_page(connection: Connection, *, before: str | None, limit: int, state: str | None = None) -> DeadLetterPage:
    """Return the newest dead letters, or those older than the one with the id `before`; only those in `state` where it is given."""
    order = tuple_(dead_letters.c.received, dead_letters.c.id)
    query = select(*_LETTER).order_by(dead_letters.c.received.desc(), dead_letters.c.id.desc()).limit(limit + 1)
    if state is not None:
        query = query.where(dead_letters.c.state == state)
    if before is not None:
        last = select(dead_letters.c.received, dead_letters.c.id).where(dead_letters.c.id == before)
        query = query.where(order < last.scalar_subquery())
    found = connection.execute(query).all()
    names = _names(connection, found)
    shown = found[:limit]
    letters = [DeadLetterSummary(**_letter(row, names)) for row in shown]
    return DeadLetterPage(dead_letters=letters, before=shown[-1].id if len(found) > limit else None)


def dead_letter_detail(connection: Connection, id: str) -> DeadLetterDetail | None:
    """Return the dead letter `id`, or None."""
    row = connection.execute(select(*_LETTER, dead_letters.c.raw, dead_letters.c.traceback).where(dead_letters.c.id == id)).one_or_none()
    if row is None:
        return None
    return DeadLetterDetail(**_letter(row, _names(connection, [row])), raw=row.raw, traceback=json.loads(row.traceback))


def _letter(row: Found, names: dict[int, str]) -> dict[str, Any]:
    known = {column.name: getattr(row, column.name) for column in _LETTER}
    fired = [names.get(trigger, f"trigger {trigger}") for trigger in json.loads(row.triggers)]
    return {**known, "triggers": fired, "received": moment(row.received)}


def _names(connection: Connection, letters: Sequence[Found]) -> dict[int, str]:
    wanted = {trigger for row in letters for trigger in json.loads(row.triggers)}
    return {row.id: row.name for row in connection.execute(select(triggers.c.id, triggers.c.name).where(triggers.c.id.in_(wanted)))}
