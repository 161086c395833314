"""Find events of the log by their id. An id is unique within its source only, and the log has an index of pairs, not of ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, select

from headrace.core.identity import event_key
from headrace.store.db.meta import log_end
from headrace.store.dialects.statements import ResultRow
from headrace.store.tables.log import events

MAX_SEARCHED_EVENTS: Final = 100_000
"""Maximum of the newest events that are examined. Older events are looked up with the sources of these."""
MAX_SEARCHED_SOURCES: Final = 1_000
MAX_EVENTS_OF_ID: Final = 20


def events_with_id(connection: Connection, id: str) -> Sequence[ResultRow]:
    """Return the `seq` and `source` of the events with this id, the newest first, at most `MAX_EVENTS_OF_ID`."""
    newest = events.c.seq > log_end(connection) - MAX_SEARCHED_EVENTS
    sources = connection.execute(select(events.c.source).where(newest).distinct().limit(MAX_SEARCHED_SOURCES)).scalars()
    keys = [event_key(source, id) for source in sources]
    named = select(events.c.seq, events.c.source).order_by(events.c.seq.desc()).limit(MAX_EVENTS_OF_ID)
    rows = [*connection.execute(named.where(newest, events.c.id == id)), *connection.execute(named.where(events.c.key.in_(keys)))]
    return sorted({row.seq: row for row in rows}.values(), key=lambda row: -row.seq)[:MAX_EVENTS_OF_ID]
