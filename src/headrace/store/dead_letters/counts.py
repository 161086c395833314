"""Numbers of dead letters in each state. Discarded dead letters count also after retention has deleted them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, func, insert, select, update

from headrace.store.tables.base import meta
from headrace.store.tables.custody import dead_letters
from headrace.wire.custody.dead_letters import DeadLetterState

DELETED: Final = "deleted_dead_letters"
"""The name in `meta` of the number of deleted discarded dead letters."""

_by_state = select(dead_letters.c.state, func.count()).group_by(dead_letters.c.state)
_deleted = select(meta.c.value).where(meta.c.name == DELETED)


def dead_letter_counts(connection: Connection) -> dict[DeadLetterState, int]:
    """Return the number of dead letters in each state, including deleted discarded ones."""
    rows = connection.execute(_by_state)
    counts: dict[DeadLetterState, int] = {"open": 0, "redriven": 0, "discarded": 0}
    counts.update({row[0]: int(row[1]) for row in rows})
    counts["discarded"] += connection.execute(_deleted).scalar_one_or_none() or 0
    return counts


def count_deleted_dead_letters(connection: Connection, number: int) -> None:
    """Add to the number of deleted discarded dead letters."""
    if not connection.execute(update(meta).where(meta.c.name == DELETED).values(value=meta.c.value + number)).rowcount:
        connection.execute(insert(meta).values(name=DELETED, value=number))
