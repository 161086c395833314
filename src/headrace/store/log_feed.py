"""A page of the log on its way into a scope of the ordering that lives in the same database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Row, select

from headrace.core.handling import Caused
from headrace.store.database import Database
from headrace.store.ordering import SqlOrdering
from headrace.store.ordering_tables import ordering_scopes
from headrace.store.ordering_turn import Fed, Feed
from headrace.store.tables import events

LOOKBACK: Final = 900_000_000
"""How long, in µs by the database's clock, such a scope waits for a leader."""
PAGE: Final = 2_000

_FED = [events.c[name] for name in ("seq", "key", "leader_key", "leader_seq", "source", "id", "type", "follows", "occurred")]


def feed(database: Database, home: SqlOrdering, passes: Callable[[Row[Any]], bool]) -> bool:
    """Let the scope read a page of the log; whether there was one. What `passes` nobody handles: it counts as soon as its leader does."""
    with database.reading() as connection:
        head = connection.execute(select(ordering_scopes.c.head).where(ordering_scopes.c.id == home.scope_id)).scalar_one()
        rows = connection.execute(select(*_FED).where(events.c.seq > head).order_by(events.c.seq).limit(PAGE)).all()
    if rows:
        home.take(Feed([_fed(row, passes=passes(row)) for row in rows], rows[-1].seq), database.now())
    return bool(rows)


def _fed(row: Row[Any], *, passes: bool) -> Fed:
    event = Caused(row.source, row.id, row.follows, row.occurred, None, row.key, row.leader_key)
    return Fed(event, row.seq, passes=passes, known=row.leader_seq >= 0)
