"""Pages of the log and of the dead letters, the newest first."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, tuple_

from headrace.core.identity import event_key
from headrace.core.matching.payloads import PayloadPattern
from headrace.core.tracing import event_trace
from headrace.core.values.message_text import split_metadata
from headrace.core.values.moments import moment
from headrace.store.db.meta import log_end
from headrace.store.dead_letters.short_ids import full_ids, short_id
from headrace.store.dead_letters.texts import whole_text
from headrace.store.dialects.statements import ResultRow
from headrace.store.ordering.payloads import PayloadBudget, payload_matches
from headrace.store.queries.ordering_scopes import event_in_sql_scopes
from headrace.store.queries.pipeline_runs import run_called, runs_of_event
from headrace.store.queries.scopes import event_in_pipelines
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import dead_letters
from headrace.store.tables.log import events, firings, pruned_event_keys
from headrace.wire.status.status import (
    DeadLetterDetail,
    DeadLetterPage,
    DeadLetterSummary,
    EventDetail,
    EventLeader,
    EventPage,
    EventSummary,
)

MAX_SCANNED_EVENTS = 100_000
"""Maximum number of events that a filtered page examines."""
MAX_TESTED_EVENTS = 10_000
"""Maximum number of events whose payload one page tests by a pattern. `PayloadBudget` limits their bytes and the time."""
RUNS_OF_EVENT = 100
"""Maximum number of runs in the detail of an event."""

_SUMMARY = [events.c[name] for name in EventSummary.model_fields if name in events.c]
_DETAIL = [events.c[name] for name in EventDetail.model_fields if name in events.c]
_DEAD_LETTER = [
    dead_letters.c[name]
    for name in ("id", "kind", "reason", "stream", "lane", "position", "triggers", "attempts", "received", "state", "not_copied")
]
_newest = select(*_SUMMARY).where(events.c.seq > bindparam("after")).order_by(events.c.seq.desc())
_firings = (
    select(firings.c.seq, triggers.c.name)
    .join(triggers, triggers.c.id == firings.c.trigger_id)
    .where(firings.c.seq.in_(bindparam("seqs", expanding=True)))
    .order_by(triggers.c.name)
)


def newest_events(connection: Connection, *, limit: int) -> list[EventSummary]:
    """Return the last `limit` events, the newest first."""
    return _summaries(connection, connection.execute(_newest, {"after": log_end(connection) - limit}).all())


def event_page(
    connection: Connection,
    *,
    after: int | None = None,
    before: int | None = None,
    limit: int,
    type: str | None = None,
    subject: str | None = None,
    pattern: PayloadPattern | None = None,
) -> EventPage:
    """Return events with after < seq < before, of the given type and subject, whose payload matches the pattern.

    The newest come first. With `after` alone, the events that follow it come, the oldest first.
    """
    end = log_end(connection) + 1
    low = after or 0
    high = end if before is None else min(before, end)
    forward = after is not None and before is None
    scan_limit = high if type is None and subject is None and pattern is None else MAX_SCANNED_EVENTS
    if forward:
        high = min(high, low + 1 + scan_limit)
    bottom = low if forward else max(low, high - 1 - scan_limit)
    conditions = [events.c.seq > bottom, events.c.seq < high]
    if type is not None:
        conditions.append(events.c.type == type)
    if subject is not None:
        conditions.append(events.c.subject == subject)
    order = events.c.seq.asc() if forward else events.c.seq.desc()
    if pattern is None:
        rows = connection.execute(select(*_SUMMARY).where(*conditions).order_by(order).limit(limit)).all()
        last = rows[-1].seq if len(rows) == limit else None
    else:
        seqs = connection.execute(select(events.c.seq).where(*conditions).order_by(order).limit(MAX_TESTED_EVENTS)).scalars().all()
        matched, last = _matching(connection, pattern, seqs, limit)
        rows = connection.execute(select(*_SUMMARY).where(events.c.seq.in_(matched)).order_by(order)).all()
    summaries = _summaries(connection, rows)
    if forward:
        return EventPage(events=summaries, after=max(low, high - 1) if last is None else last, before=None)
    reached = bottom + 1 if last is None else last
    return EventPage(events=summaries, after=None, before=reached if reached > low + 1 else None)


def _matching(connection: Connection, pattern: PayloadPattern, seqs: Sequence[int], limit: int) -> tuple[list[int], int | None]:
    """Return the first `limit` events that match, and the last tested event, or None if all events of the range were tested."""
    matched: list[int] = []
    last: int | None = None
    for seq, matches in payload_matches(connection, pattern, seqs, PayloadBudget()):
        last = seq
        if matches:
            matched.append(seq)
            if len(matched) == limit:
                return matched, seq
    is_whole = not seqs or (last == seqs[-1] and len(seqs) < MAX_TESTED_EVENTS)
    return matched, None if is_whole else last


def event_detail(connection: Connection, seq: int, now: int) -> EventDetail | None:
    """Return the event `seq`, or None if it does not exist. `now` is in microseconds."""
    row = connection.execute(select(*_DETAIL).where(events.c.seq == seq)).one_or_none()
    if row is None:
        return None
    known = {**_times(row), "trace": event_trace(row.source, row.id, row.trace)}
    return EventDetail(
        **known,
        triggers=_fired(connection, [seq])[seq],
        runs=runs_of_event(connection, seq, limit=RUNS_OF_EVENT),
        leader=None if row.follows is None else _leader(connection, event_key(row.source, row.follows)),
        scopes=[*event_in_pipelines(connection, seq, now), *event_in_sql_scopes(connection, seq, now)],
    )


def _leader(connection: Connection, key: bytes) -> EventLeader:
    stored = connection.execute(select(events.c.seq, events.c.received).where(events.c.key == key)).one_or_none()
    if stored is not None:
        return EventLeader(state="stored", seq=stored.seq, received=moment(stored.received))
    pruned = connection.execute(select(pruned_event_keys.c.seq).where(pruned_event_keys.c.key == key)).scalar_one_or_none()
    return EventLeader(state="missing") if pruned is None else EventLeader(state="pruned", seq=pruned)


def _summaries(connection: Connection, rows: Sequence[ResultRow]) -> list[EventSummary]:
    names = _fired(connection, [row.seq for row in rows])
    return [EventSummary(**_times(row), triggers=names[row.seq]) for row in rows]


def _times(row: ResultRow) -> dict[str, Any]:
    return {**row._asdict(), "occurred": moment(row.occurred), "received": moment(row.received)}


def _fired(connection: Connection, seqs: Sequence[int]) -> dict[int, list[str]]:
    """Return the names of the triggers that fired on each event."""
    names: dict[int, list[str]] = defaultdict(list)
    for seq, name in connection.execute(_firings, {"seqs": seqs}):
        names[seq].append(name)
    return names


def events_of_run(connection: Connection, run_id: str, *, before: int | None, limit: int) -> EventPage | None:
    """Return events of a run with seq < before, the newest first, or None if the run does not exist."""
    run = run_called(connection, run_id)
    if run is None:
        return None
    seqs: list[int] = []
    for first, last in sorted(run.seqs, reverse=True):
        top = last if before is None else min(last, before - 1)
        seqs += range(top, max(first - 1, top - (limit + 1 - len(seqs))), -1)
    rows = connection.execute(select(*_SUMMARY).where(events.c.seq.in_(seqs[:limit])).order_by(events.c.seq.desc())).all()
    return EventPage(events=_summaries(connection, rows), after=None, before=seqs[limit - 1] if len(seqs) > limit else None)


def dead_letter_page(connection: Connection, *, before: str | None, limit: int, state: str | None = None) -> DeadLetterPage:
    """Return the newest dead letters, or those older than the id `before`, in `state` if given."""
    order = tuple_(dead_letters.c.received, dead_letters.c.id)
    query = select(*_DEAD_LETTER).order_by(dead_letters.c.received.desc(), dead_letters.c.id.desc()).limit(limit + 1)
    if state is not None:
        query = query.where(dead_letters.c.state == state)
    if before is not None:
        last = select(dead_letters.c.received, dead_letters.c.id).where(dead_letters.c.id == before)
        query = query.where(order < last.scalar_subquery())
    rows = connection.execute(query).all()
    names = _names(connection, rows)
    page = rows[:limit]
    summaries = [DeadLetterSummary(**_dead_letter_summary(row, names)) for row in page]
    return DeadLetterPage(dead_letters=summaries, before=page[-1].id if len(rows) > limit else None)


def dead_letter_detail(connection: Connection, id: str) -> DeadLetterDetail | None:
    """Return the dead letter `id`, which may be abbreviated, or None if it does not exist."""
    (id,) = full_ids(connection, dead_letters.c.id, [id])
    row = connection.execute(
        select(*_DEAD_LETTER, dead_letters.c.raw, dead_letters.c.traceback).where(dead_letters.c.id == id)
    ).one_or_none()
    if row is None:
        return None
    metadata, raw = split_metadata(whole_text(connection, id) or row.raw)
    return DeadLetterDetail(
        **_dead_letter_summary(row, _names(connection, [row])),
        raw=raw,
        metadata={} if metadata is None else metadata.fields(),
        traceback=json.loads(row.traceback),
    )


def _dead_letter_summary(row: ResultRow, names: dict[int, str]) -> dict[str, Any]:
    known = {column.name: getattr(row, column.name) for column in _DEAD_LETTER}
    fired = [names.get(trigger, f"trigger {trigger}") for trigger in json.loads(row.triggers)]
    return {**known, "triggers": fired, "received": moment(row.received), "short": short_id(row.id)}


def _names(connection: Connection, rows: Sequence[ResultRow]) -> dict[int, str]:
    trigger_ids = {trigger for row in rows for trigger in json.loads(row.triggers)}
    return {row.id: row.name for row in connection.execute(select(triggers.c.id, triggers.c.name).where(triggers.c.id.in_(trigger_ids)))}
