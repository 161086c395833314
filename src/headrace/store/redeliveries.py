"""What the log says once more, in an order of its own: firings that came later than their event, and dead letters that are tried again.

A scope that has read an event never reads it a second time, so what is added to it later would not be seen. It is written down here, in
the transaction that adds it, and a page of the log tells of an event only what was known when it was stored. So a batch that runs again
sees what it saw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, func, select

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
    """An event that a dead letter names first, and the letter."""

    seq: int
    letter_id: str


def last_redelivery(connection: Connection) -> int:
    """Return the id of the last redelivery, 0 where there is none."""
    return int(connection.execute(_last).scalar_one() or 0)


def record_late_firings(connection: Connection, pairs: Sequence[tuple[int, int]]) -> None:
    """Write down that each (seq, trigger) fired after its event was stored; in the writer's transaction."""
    if pairs:
        first = last_redelivery(connection) + 1
        _insert(connection, [(first + number, seq, trigger, None) for number, (seq, trigger) in enumerate(pairs)])


def record_redrives(connection: Connection, letters: Sequence[Redrive]) -> None:
    """Write down that these dead letters are tried again; in the writer's transaction."""
    if letters:
        first = last_redelivery(connection) + 1
        _insert(connection, [(first + number, seq, None, letter) for number, (seq, letter) in enumerate(letters)])


def later_firings(connection: Connection, first: int, last: int) -> set[tuple[int, int]]:
    """Return the (seq, trigger) among these seqs that are told as redeliveries."""
    place = redeliveries.c.seq.between(first, last) & redeliveries.c.trigger_id.is_not(None)
    return {(row[0], row[1]) for row in connection.execute(select(redeliveries.c.seq, redeliveries.c.trigger_id).where(place))}


def trigger_names(connection: Connection, ids: Iterable[int], project: str | None) -> dict[int, str]:
    """Return the names of these triggers, in the order of their ids; with a `project`, of its own only."""
    query = _names if project is None else _names.where(triggers.c.project == project)
    return dict(sorted((row.id, row.name) for row in rows_among(connection, query, "ids", set(ids))))


def redelivered(connection: Connection, after: int, to: int, project: str | None) -> list[Redelivery]:
    """Return the redeliveries with after < id <= to; with a `project`, of its own triggers only."""
    rows = connection.execute(
        select(redeliveries).where(redeliveries.c.id > after, redeliveries.c.id <= to).order_by(redeliveries.c.id)
    ).all()
    before = told_firings(connection, sorted({row.seq for row in rows if row.trigger_id is not None}))
    named = {row.trigger_id for row in rows if row.trigger_id is not None} | {one for told in before.values() for one in told}
    names = trigger_names(connection, named, project)
    letters = _letters(connection, [row.letter_id for row in rows if row.letter_id is not None])
    found: list[Redelivery] = []
    for row in rows:
        if row.trigger_id in names:
            known = [names[trigger] for trigger, since in sorted(before[row.seq].items()) if since < row.id and trigger in names]
            found.append(Redelivery(id=row.id, seq=row.seq, trigger=names[row.trigger_id], before=known))
        elif row.letter_id in letters:
            letter = letters[row.letter_id]
            seqs = msgspec.json.decode(letter.seqs, type=list[tuple[int, int]])
            again = {"letter": letter.id, "scope": letter.scope, "pipeline": letter.pipeline, "seqs": seqs, "slice": letter.slice}
            found.append(Redelivery(id=row.id, seq=row.seq, **again))
    return found


def told_firings(connection: Connection, seqs: list[int]) -> dict[int, dict[int, int]]:
    """Return, for each event, its triggers and the redelivery that told of each; 0: it was told with the event."""
    told: dict[int, dict[int, int]] = defaultdict(dict)
    if seqs:
        for seq, trigger in rows_among(connection, _known, "seqs", seqs):
            told[seq][trigger] = 0
        for number, seq, trigger in rows_among(connection, _later, "seqs", seqs):
            told[seq][trigger] = number
    return told


def _letters(connection: Connection, ids: list[str]) -> dict[str, Row[*tuple[Any, ...]]]:
    if not ids:
        return {}
    return {
        row.id: row
        for row in connection.execute(select(pipeline_dead_letters).where(in_list(pipeline_dead_letters.c.id, "ids")), {"ids": ids})
    }
