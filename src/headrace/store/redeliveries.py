"""Redeliveries, in an order of their own: late firings of events, and redriven dead letters.

A scope never reads an event twice, so a later addition to the event would be lost. The transaction that adds it
also records it here. A page of the log has only the data that was known when the event was stored. Invariant: a
repeated batch reads the same data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, func, select

from headrace.core.values.shards import whole_name
from headrace.store.dialects.statements import BulkInsert, in_list, rows_among
from headrace.store.tables.control import triggers
from headrace.store.tables.log import firings
from headrace.store.tables.pipelines import pipeline_dead_letters, redeliveries
from headrace.wire.pipelines.runs import Redelivery

_insert = BulkInsert(redeliveries)
_last = select(func.max(redeliveries.c.id))
_known = select(firings.c.seq, firings.c.trigger_id).where(in_list(firings.c.seq, "seqs"))
_later = (
    select(redeliveries.c.id, redeliveries.c.seq, redeliveries.c.trigger_id)
    .where(in_list(redeliveries.c.seq, "seqs"))
    .where(redeliveries.c.trigger_id.is_not(None))
)
_names = select(triggers.c.id, triggers.c.name).where(in_list(triggers.c.id, "ids"))


class Redrive(NamedTuple):
    """The first event of a dead letter, and the dead letter."""

    seq: int
    dead_letter_id: str


def last_redelivery(connection: Connection) -> int:
    """Return the id of the last redelivery, or 0 if there is none."""
    return int(connection.execute(_last).scalar_one() or 0)


def record_late_firings(connection: Connection, pairs: Sequence[tuple[int, int]]) -> None:
    """Record that each (seq, trigger) fired after its event was stored. Call it in the writer's transaction."""
    if pairs:
        first = last_redelivery(connection) + 1
        _insert(connection, [(first + number, seq, trigger, None) for number, (seq, trigger) in enumerate(pairs)])


def record_redrives(connection: Connection, redrives: Sequence[Redrive]) -> None:
    """Record that these dead letters are redriven. Call it in the writer's transaction."""
    if redrives:
        first = last_redelivery(connection) + 1
        _insert(connection, [(first + number, seq, None, dead_letter_id) for number, (seq, dead_letter_id) in enumerate(redrives)])


def later_firings(connection: Connection, first: int, last: int) -> set[tuple[int, int]]:
    """Return each (seq, trigger) with one of these seqs that is a redelivery."""
    condition = redeliveries.c.seq.between(first, last) & redeliveries.c.trigger_id.is_not(None)
    return {(row[0], row[1]) for row in connection.execute(select(redeliveries.c.seq, redeliveries.c.trigger_id).where(condition))}


def trigger_names(connection: Connection, ids: Iterable[int], project: str | None) -> dict[int, str]:
    """Return the names of these triggers without shards, in the order of their ids; with a `project`, only its own."""
    query = _names if project is None else _names.where(triggers.c.project == project)
    return dict(sorted((row.id, whole_name(row.name)) for row in rows_among(connection, query, "ids", set(ids))))


def redelivered(connection: Connection, after: int, to: int, project: str | None) -> list[Redelivery]:
    """Return the redeliveries with after < id <= to; with a `project`, only of its own triggers."""
    rows = connection.execute(
        select(redeliveries).where(redeliveries.c.id > after, redeliveries.c.id <= to).order_by(redeliveries.c.id)
    ).all()
    before = firing_redeliveries(connection, sorted({row.seq for row in rows if row.trigger_id is not None}))
    named = {row.trigger_id for row in rows if row.trigger_id is not None} | {one for trigger_ids in before.values() for one in trigger_ids}
    names = trigger_names(connection, named, project)
    dead_letter_rows = _dead_letters(connection, [row.dead_letter_id for row in rows if row.dead_letter_id is not None])
    result: list[Redelivery] = []
    for row in rows:
        if row.trigger_id in names:
            known = [names[trigger] for trigger, since in sorted(before[row.seq].items()) if since < row.id and trigger in names]
            result.append(Redelivery(id=row.id, seq=row.seq, trigger=names[row.trigger_id], before=known))
        elif row.dead_letter_id in dead_letter_rows:
            dead_letter = dead_letter_rows[row.dead_letter_id]
            seqs = msgspec.json.decode(dead_letter.seqs, type=list[tuple[int, int]])
            again = {
                "dead_letter": dead_letter.id,
                "scope": dead_letter.scope,
                "pipeline": dead_letter.pipeline,
                "seqs": seqs,
                "slice": dead_letter.slice,
            }
            result.append(Redelivery(id=row.id, seq=row.seq, **again))
    return result


def firing_redeliveries(connection: Connection, seqs: list[int]) -> dict[int, dict[int, int]]:
    """Return, for each event, its triggers and the id of each firing's redelivery, 0 if the event itself had it."""
    redelivery_ids: dict[int, dict[int, int]] = defaultdict(dict)
    if seqs:
        for seq, trigger in rows_among(connection, _known, "seqs", seqs):
            redelivery_ids[seq][trigger] = 0
        for number, seq, trigger in rows_among(connection, _later, "seqs", seqs):
            redelivery_ids[seq][trigger] = number
    return redelivery_ids


def _dead_letters(connection: Connection, ids: list[str]) -> dict[str, Row[*tuple[Any, ...]]]:
    if not ids:
        return {}
    return {
        row.id: row
        for row in connection.execute(select(pipeline_dead_letters).where(in_list(pipeline_dead_letters.c.id, "ids")), {"ids": ids})
    }
