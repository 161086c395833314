"""A page of the log on its way into a scope of the ordering that lives in the same database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self

from sqlalchemy import Connection, Row, select

from headrace.core.handling import Caused
from headrace.store.database import Database
from headrace.store.ordering import SqlOrdering
from headrace.store.ordering_tables import ordering_scopes
from headrace.store.ordering_turn import Fed, Feed
from headrace.store.tables import events

LOOKBACK: Final = 900_000_000
"""How long, in µs of the age of the database, such a scope waits for a leader."""
PAGE: Final = 2_000

_COLUMNS = ("seq", "key", "leader_key", "leader_seq", "source", "id", "type", "subject", "follows", "occurred")
_FED = [events.c[name] for name in _COLUMNS]


class Reading(NamedTuple):
    """How far one call has read: whether it read anything, and whether that was a whole page, so that the log may have more."""

    any: bool
    whole_page: bool

    @classmethod
    def of(cls, rows: Sequence[Row[Any]]) -> Self:
        """Return how far a call has read that got these rows."""
        return cls(bool(rows), len(rows) >= PAGE)


def feed(database: Database, home: SqlOrdering, passes: Callable[[Row[Any]], bool]) -> Reading:
    """Let the scope read a page of the log. What `passes` nobody handles: it counts as soon as its leader does."""
    with database.reading() as connection:
        rows = page_after(connection, home.scope_id)
    if rows:
        home.take(fed(rows, passes), database.now())
    return Reading.of(rows)


def expire(home: SqlOrdering, reading: Reading, now: int) -> None:
    """Give up the leaders that did not come, unless the log may have more: after a pause they may be on the next page."""
    if not reading.whole_page:
        home.expire(now)


def page_after(connection: Connection, scope_id: int) -> Sequence[Row[Any]]:
    """Return the next events of the log that a scope has not read."""
    head = connection.execute(select(ordering_scopes.c.head).where(ordering_scopes.c.id == scope_id)).scalar_one()
    return connection.execute(select(*_FED).where(events.c.seq > head).order_by(events.c.seq).limit(PAGE)).all()


def fed(rows: Sequence[Row[Any]], passes: Callable[[Row[Any]], bool]) -> Feed:
    """Return a page as a scope takes it."""
    return Feed([_fed(row, passes=passes(row)) for row in rows], rows[-1].seq)


def _fed(row: Row[Any], *, passes: bool) -> Fed:
    event = Caused(row.source, row.id, row.follows, row.occurred, None, row.key, row.leader_key)
    return Fed(event, row.seq, passes=passes, known=row.leader_seq >= 0)
