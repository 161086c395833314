"""Pruning of the event log: old events that every scope has passed and that no open item needs.

Invariants:
- An event that a scope may still read is retained. For a pipeline's scope: events after its `low_watermark` and
  after the first event of an open run. For a webhook's scope, paused or not: events after its head. For the scope
  of task runs: events after its head while a run waits.
- An open item retains only its own events: events of pipelines' dead letters, pending or dead events of webhooks,
  and events of redeliveries that a scope has not read.
- An event is deleted with its firings and redeliveries. Its key and `seq` are retained until the event is
  KEY_RETENTIONS times as old. Until then a later copy is detected as a copy, and a later follower finds its leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, insert, or_, select, update

from headrace.store.db.ages import AgeLimit
from headrace.store.db.meta import LAST_PRUNED_SEQ, last_pruned_seq
from headrace.store.db.slices import Slice, size_of, take_slice
from headrace.store.dialects.statements import BulkInsert, DriverStatement
from headrace.store.pipelines.scope_needs import needed_after
from headrace.store.tables.base import meta
from headrace.store.tables.log import events, firings, pruned_event_keys
from headrace.store.tables.ordering import ordering_events, ordering_scopes
from headrace.store.tables.pipelines import pipeline_dead_letters, redeliveries, scopes
from headrace.store.tables.task_runs import event_waits
from headrace.store.tables.webhooks import webhooks

"""The name in `meta` of the last pruned seq. After it, the log has no gap."""

MAX_SCANNED_EVENTS: Final = 5_000
"""Events that one transaction examines, including the events that are still needed."""

FIRING_BYTES: Final = 256
"""Bytes that a firing counts for: its row is small, but needs a lookup of its own."""

_ENDLESS = 2**63 - 1

_scope_needs = select(func.min(needed_after), func.min(scopes.c.last_redelivery_id)).select_from(scopes)
# The scope of task runs reads only while a run waits. It begins again then.
_at_work = ordering_scopes.c.id.in_(select(webhooks.c.scope_id)) | exists(select(event_waits.c.run_id))
_heads = select(func.min(ordering_scopes.c.head)).where(_at_work)
_last_redelivery = select(func.max(redeliveries.c.id))
_unsettled = exists().where(ordering_events.c.seq == events.c.seq)
_DELETES = [DriverStatement(f"DELETE FROM {table} WHERE seq IN :seqs", seqs="bigint") for table in ("firings", "redeliveries", "events")]  # noqa: S608
_add_keys = BulkInsert(pruned_event_keys)
_firings = select(func.count()).where(firings.c.seq == events.c.seq).correlate(events).scalar_subquery()
_bytes = size_of(events.c.payload, plus=FIRING_BYTES * _firings)


class Swept(NamedTuple):
    """The result of one transaction: what it deleted, up to which seq it looked, and whether it reached the end."""

    rows: int
    position: int
    done: bool


def logged_events(connection: Connection, old: AgeLimit, limit: int, after: int = 0) -> Swept:
    """Delete up to `limit` old events after the seq `after`; examine no more than MAX_SCANNED_EVENTS.

    If payloads are large or firings are many, MAX_SLICE_BYTES bounds the transaction first.
    """
    last_unneeded, again = connection.execute(_scope_needs).one()
    head = connection.execute(_heads).scalar_one()
    bound = min(old.next_head, *(_ENDLESS if end is None else end for end in (last_unneeded, head)))
    aged = or_(events.c.seq <= old.head, events.c.received < old.received)
    spare = [aged, ~_unsettled, ~_unread(connection, _ENDLESS if again is None else again)]
    deletion = Slice(limit)
    position, room = after, MAX_SCANNED_EVENTS
    for first, last in _free(_dead_letter_ranges(connection), bound):
        start = _first_from(connection, max(first, position + 1), last)
        if start is None:
            continue
        end = min(last, start + room - 1)
        query = select(events.c.seq, events.c.key, _bytes).where(events.c.seq.between(start, end), *spare)
        deletion.add(connection, query.order_by(events.c.seq))
        room -= end - start + 1
        position = deletion.rows[-1].seq if deletion.full else end
        if deletion.full or not room:
            break
    else:
        position = _ENDLESS
    if deletion.rows:
        _delete(connection, deletion.rows)
    return Swept(len(deletion.rows), position, position == _ENDLESS)


def _first_from(connection: Connection, first: int, last: int) -> int | None:
    """Return the first seq in the log between `first` and `last`."""
    if first > last:
        return None
    first_seq: int | None = connection.execute(select(func.min(events.c.seq)).where(events.c.seq.between(first, last))).scalar_one()
    return first_seq


def event_keys(connection: Connection, up_to: int, limit: int) -> int:
    """Delete up to `limit` keys of deleted events up to the seq `up_to`; return their number."""
    seqs = select(pruned_event_keys.c.seq).where(pruned_event_keys.c.seq <= up_to).order_by(pruned_event_keys.c.seq).limit(limit)
    pruned_seqs = connection.execute(seqs).scalars().all()
    if pruned_seqs:
        connection.execute(delete(pruned_event_keys).where(pruned_event_keys.c.seq.between(pruned_seqs[0], pruned_seqs[-1])))
    return len(pruned_seqs)


def discarded_pipeline_dead_letters(connection: Connection, before: int, limit: int) -> int:
    """Delete discarded dead letters of pipelines. Their events are no longer needed."""
    over = (pipeline_dead_letters.c.state == "discarded", pipeline_dead_letters.c.acted < before)
    size = size_of(pipeline_dead_letters.c.seqs, pipeline_dead_letters.c.error)
    old = take_slice(connection, select(pipeline_dead_letters.c.id, size).where(*over).order_by(pipeline_dead_letters.c.acted), limit)
    return connection.execute(delete(pipeline_dead_letters).where(pipeline_dead_letters.c.id.in_([row.id for row in old.rows]))).rowcount


def _unread(connection: Connection, read: int) -> ColumnElement[bool]:
    """Return whether an event has a redelivery after `read`. The last redelivery is always retained, so that its id
    is not reused.
    """
    last = connection.execute(_last_redelivery).scalar_one()
    return exists().where(and_(redeliveries.c.seq == events.c.seq, or_(redeliveries.c.id > read, redeliveries.c.id == (last or 0))))


def _dead_letter_ranges(connection: Connection) -> list[tuple[int, int]]:
    """Return the ranges of seqs that dead letters of pipelines have, in ascending order."""
    texts = connection.execute(select(pipeline_dead_letters.c.seqs)).scalars()
    return sorted(seq_range for text in texts for seq_range in msgspec.json.decode(text, type=list[tuple[int, int]]))


def _free(needed: Iterable[tuple[int, int]], bound: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges from 1 to `bound` that are in none of the given ranges."""
    start = 1
    for first, last in needed:
        if first > start:
            yield start, min(first - 1, bound)
        start = max(start, last + 1)
        if start > bound:
            return
    if start <= bound:
        yield start, bound


def _delete(connection: Connection, rows: list[Any]) -> None:
    seqs = [row.seq for row in rows]
    for statement in _DELETES:
        statement(connection, seqs=seqs)
    _add_keys(connection, [(row.key, row.seq) for row in rows])
    last = max(seqs[-1], last_pruned_seq(connection))
    if not connection.execute(update(meta).where(meta.c.name == LAST_PRUNED_SEQ).values(value=last)).rowcount:
        connection.execute(insert(meta).values(name=LAST_PRUNED_SEQ, value=last))
