"""Feed pages of the event log to a scope whose ordering is in the same database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self

from sqlalchemy import Connection, Row, select

from headrace.core.matching.payloads import PayloadPattern
from headrace.core.ordering.delivery import OrderedEvent
from headrace.store.db.database import Database
from headrace.store.ordering.payloads import PayloadBudget, payload_matches
from headrace.store.ordering.sql_store import SqlOrdering
from headrace.store.ordering.transaction import EventFeed, FedEvent
from headrace.store.tables.log import events
from headrace.store.tables.ordering import ordering_scopes

LOOKBACK: Final = 900_000_000
"""Default time that such a scope waits for a leader, in µs of the age of the database."""
PAGE: Final = 2_000

_COLUMNS = ("seq", "key", "leader_key", "leader_seq", "source", "id", "type", "subject", "follows", "occurred")
_FED = [events.c[name] for name in _COLUMNS]


class Progress(NamedTuple):
    """The progress that a page made: whether the scope advanced, and whether it reached the end of the log."""

    moved: bool
    at_end: bool

    @classmethod
    def of(cls, page: Sequence[Row[Any]]) -> Self:
        """Return the progress that a page makes. After a full page, the log may have more events."""
        return cls(bool(page), len(page) < PAGE)


def feed(database: Database, home: SqlOrdering, receives: Callable[[Row[Any]], bool], pattern: PayloadPattern | None = None) -> Progress:
    """Feed the scope one page of the log, a shorter one if `pattern` cannot test all of it.

    An event that the scope does not receive counts as handled as soon as its leader is handled. It receives an event if `receives` is
    true and the payload matches `pattern`.
    """
    with database.reading() as connection:
        rows = page_after(connection, home.scope_id)
        progress = Progress.of(rows)
        received = {row.seq for row in rows if receives(row)}
        if pattern is not None and received:
            tested = dict(payload_matches(connection, pattern, sorted(received), PayloadBudget()))
            if len(tested) < len(received):
                last = max(tested)
                rows = [row for row in rows if row.seq <= last]
                progress = Progress(moved=True, at_end=False)
            received = {seq for seq, matches in tested.items() if matches}
    if rows:
        home.take(fed(rows, lambda row: row.seq not in received), database.now())
    return progress


def expire(home: SqlOrdering, progress: Progress, now: int) -> None:
    """Give up overdue leaders, only at the end of the log: after a pause they may be on the next page."""
    if progress.at_end:
        home.expire(now)


def page_after(connection: Connection, scope_id: int) -> Sequence[Row[Any]]:
    """Return the next events of the log after the scope's head."""
    head = connection.execute(select(ordering_scopes.c.head).where(ordering_scopes.c.id == scope_id)).scalar_one()
    return connection.execute(select(*_FED).where(events.c.seq > head).order_by(events.c.seq).limit(PAGE)).all()


def fed(rows: Sequence[Row[Any]], passes: Callable[[Row[Any]], bool]) -> EventFeed:
    """Return a page in the form that a scope reads."""
    return EventFeed([_fed(row, passes=passes(row)) for row in rows], rows[-1].seq)


def _fed(row: Row[Any], *, passes: bool) -> FedEvent:
    event = OrderedEvent(row.source, row.id, row.follows, row.occurred, None, row.key, row.leader_key)
    return FedEvent(event, row.seq, passes=passes, known=row.leader_seq >= 0)
